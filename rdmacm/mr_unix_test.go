//go:build unix

package rdmacm

import (
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// foreign maps n bytes as a program does.
func foreign(t *testing.T, n int) []byte {
	t.Helper()
	b := must.Get(syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON))(t)
	t.Cleanup(func() { must.Do(t, syscall.Munmap(b)) })
	return b
}

// yieldingPD lets other goroutines run before it registers memory.
type yieldingPD struct{ verbs.PD }

func (p yieldingPD) RegMR(addr, n, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	for range 4 {
		runtime.Gosched()
	}
	return p.PD.RegMR(addr, n, iova, access)
}

// Rule: goroutines that register and deregister the same memory, of the library or of the program, do
// not disturb each other, and nothing is left. (The bug: a region pinned the adopted arena of another
// one, whose Dereg then failed and left the arena behind.)
func TestRegistrationsOfOneBufferBesideEachOther(t *testing.T) {
	const goroutines, rounds = 8, 200
	r := newRig(t)
	pd := yieldingPD{r.dev[0].PD()}
	m := must.Get(verbs.AllocMemory(1 << 16))(t)
	before, _ := mem.Live()
	for what, buf := range map[string][]byte{"the library": m.Bytes(), "the program": foreign(t, 1<<16)} {
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range rounds {
					mr, err := RegMR(pd, buf, verbs.AccessLocalWrite)
					if err == nil {
						err = mr.Dereg()
					}
					if err != nil {
						t.Errorf("memory of %s: %v", what, err)
						return
					}
				}
			})
		}
		all.Wait()
		if after, _ := mem.Live(); after != before {
			t.Errorf("memory of %s: %d arenas are left, want %d", what, after, before)
		}
	}
	must.Do(t, m.Close())
}
