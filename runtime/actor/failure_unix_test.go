//go:build unix

package actor

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a fault in a handler, here in memory that was unmapped, fails the actor and not the program. The
// handler's goroutine may be used for other functions afterwards, in which a fault is no panic.
func TestAFaultIsAFailure(t *testing.T) {
	w := newWorld(t, Config{})
	gone := must.Get(syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	must.Do(t, syscall.Munmap(gone))
	h := newWhole()
	close(h.let)
	h.on["fault"] = func(*Context[string]) { gone[0]++ }
	r := spawn[string](w, Options{Restart: Restart{Most: -1}}, h)
	w.must("telling", r.Tell(w.ctx, "fault"))
	wait(w, "the end", r.Done())
	if d := w.dead(); len(d) != 1 || !strings.Contains(d[0], "invalid memory address") {
		t.Errorf("dead letters %q, want one with the fault", d)
	}
	panics := make(chan bool)
	w.pool.Go(func() { panics <- faultsPanic() })
	if <-panics {
		t.Error("a function of the pool runs with faults as panics")
	}
}
