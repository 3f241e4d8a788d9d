package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// slowEnd is a protection domain whose registrations wait in Close, as for a disk that writes what a peer has flushed.
type slowEnd struct {
	verbs.PD
	entered chan struct{} // gets a value when Close begins to wait
	mayEnd  chan struct{} // Close waits until the test closes this channel
}

func (d slowEnd) RegMR(addr, n, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	mr, err := d.PD.RegMR(addr, n, iova, access)
	return slowMR{mr, d}, err
}

type slowMR struct {
	verbs.MR
	d slowEnd
}

func (r slowMR) Close() error {
	select {
	case r.d.entered <- struct{}{}:
	case <-r.d.mayEnd:
	}
	<-r.d.mayEnd
	return r.MR.Close()
}

// slowRegion returns a region of rt whose Close waits.
func slowRegion(t *testing.T, rt *Runtime) (*Region, slowEnd) {
	slow := slowEnd{rt.mem.pd, make(chan struct{}), make(chan struct{})}
	rt.mem.pd = slow
	r := must.Get(rt.NewRegion(4096, allAccess))(t)
	rt.mem.pd = slow.PD
	return r, slow
}

// Rule: while Close of a region waits for a disk, other calls use the memory of the runtime; a second Close of the region
// waits for the first.
func TestClosingARegionKeepsNobodyFromMemory(t *testing.T) {
	rt := mustOpen(t, Config{})
	r, slow := slowRegion(t, rt)
	closed := make(chan error, 2)
	go func() { closed <- r.Close() }()
	<-slow.entered
	go func() { closed <- r.Close() }()
	other := must.Get(rt.NewRegion(4096, allAccess))(t)
	if n := rt.MemoryStats().Regions; n != 2 {
		t.Errorf("%d regions while one is being closed, want 2", n)
	}
	must.Do(t, other.Close())
	select {
	case err := <-closed:
		t.Errorf("a second Close returned %v before the first", err)
	default:
	}
	close(slow.mayEnd)
	must.Do(t, <-closed)
	must.Do(t, <-closed)
	if s := rt.MemoryStats(); s.Regions != 0 {
		t.Errorf("%d regions after Close, want 0", s.Regions)
	}
}

// Rule: Runtime.Close waits for a disk no longer than for a program that has not released its memory, and can be called
// again.
func TestRuntimeCloseDoesNotWaitForADisk(t *testing.T) {
	rt := mustOpen(t, Config{grace: time.Second})
	_, slow := slowRegion(t, rt)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rt.Close(ended); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close of a runtime whose region waits for its disk: %v, want %v", err, verbs.ErrBusy)
	}
	close(slow.mayEnd)
	rt.cfg.grace = time.Minute // for a busy machine
	must.Do(t, rt.Close(testContext(t)))
}
