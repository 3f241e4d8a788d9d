package reactor_test

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// flaky is a device whose completion channel fails to give one event, which
// stays where it is, whenever the test sets fail.
type flaky struct {
	verbs.Context
	fail atomic.Bool // the test sets it, the holder of the turn takes it back
}

type flakyChannel struct {
	verbs.CompChannel
	f *flaky
}

func (f *flaky) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := f.Context.CreateCompChannel()
	return &flakyChannel{ch, f}, err
}

func (f *flaky) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return f.Context.CreateCQ(cqe, ch.(*flakyChannel).CompChannel, vector, userData)
}

func (c *flakyChannel) GetEvent() (verbs.CQ, bool, error) {
	if c.f.fail.CompareAndSwap(true, false) {
		return nil, false, &verbs.OpError{Op: "ibv_get_cq_event", Object: c.String(), Errno: syscall.EIO}
	}
	return c.CompChannel.GetEvent()
}

// Rule: an event that could not be taken does not keep the reactor asleep at the
// next completion: its queue is armed again. (Nothing else wakes the reactor here:
// nobody drives, and it does not look by itself.)
func TestFailedGetEventDoesNotKeepAsleep(t *testing.T) {
	var f *flaky
	cfg := reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}
	a, b := pairOf(t, cfg, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { f = &flaky{Context: c}; return f })
	defer b.close(t)
	defer a.close(t)
	for range 20 {
		f.fail.Store(true)
		answered(t, a, b) // woken by the event that it cannot take
		answered(t, a, b)
		answered(t, a, b)
	}
}
