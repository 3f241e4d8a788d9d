//go:build unix

package rdmacm

import (
	"errors"
	"math"
	"math/bits"
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

// longMR is a registration of the whole address space. The device does not have it.
type longMR struct {
	verbs.MR
	addr uint64
}

func (m longMR) Addr() uint64   { return m.addr }
func (m longMR) Length() uint64 { return math.MaxInt }

// Rule (struct ibv_sge): an element has a length of 32 bits. A buffer that is longer is refused with
// EINVAL by every call. (The bug: the length was cut, and 2^32+8 bytes completed with success after 8.)
func TestLengthsAreNotCut(t *testing.T) {
	if bits.UintSize < 64 {
		t.Skip("no buffer is longer than 32 bits can say")
	}
	r := newRig(t)
	c, _ := r.connected(attr())
	in := r.memory(c, 64, (*ID).RegMsgs)
	over := 1 << min(32, bits.UintSize-2)                                                                        // the condition is for the compiler: it is 1 << 32
	all := must.Get(syscall.Mmap(-1, 0, over+1<<20, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON))(t) // never accessed
	defer syscall.Munmap(all)
	for _, n := range []int{over, over + 1, over + 8, over + 1<<20} {
		buf := all[:n]
		mr := &MR{MR: longMR{in.MR, mem.AddrOf(all)}, buf: buf}
		for what, err := range map[string]error{
			"PostSend":                  c.PostSend(1, buf, mr, verbs.SendSignaled),
			"PostWrite":                 c.PostWrite(1, buf, mr, verbs.SendSignaled, 0, 0),
			"PostRead":                  c.PostRead(1, buf, mr, verbs.SendSignaled, 0, 0),
			"PostRecv":                  c.PostRecv(1, buf, mr),
			"PostSend without a region": c.PostSend(1, buf, nil, verbs.SendSignaled),
		} {
			if !errors.Is(err, syscall.EINVAL) || !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%s of %d bytes: %v, want EINVAL", what, n, err)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("MR.SGE of %d bytes did not panic", n)
				}
			}()
			mr.SGE(0, n)
		}()
	}
}
