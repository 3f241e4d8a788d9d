//go:build linux && !portable

package sys

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a measurement that fails is not remembered. (The bug: a process that had no descriptor left at the
// first one had no cost of a wake-up for its life.)
func TestWakeCostIsMeasuredAgainAfterAFailure(t *testing.T) {
	ev := must.Get(NewEvent())(t)
	defer ev.Close()
	fd := must.Get(NewEvent())(t)
	defer fd.Close()
	if fd.FD() < 0 {
		t.Fatal("an event has no descriptor")
	}
	for name, s := range map[string]Source{"announced": ev, "by descriptor": byDescriptor{fd}} {
		w := &wakeCosts[0]
		if !Announces(s) {
			w = &wakeCosts[1]
		}
		w.cost = 0 // another test may have measured
		var was syscall.Rlimit
		must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
		none := was
		none.Cur = 3 // those that every process has
		must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
		_, err := WakeCost(s)
		must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
		if !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%s: without descriptors: %v, want EMFILE", name, err)
		}
		if cost, err := WakeCost(s); err != nil || cost <= 0 {
			t.Errorf("%s: with descriptors again: %v, %v", name, cost, err)
		}
	}
}
