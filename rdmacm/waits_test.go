package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// held opens a library on the software RNIC, whose calls plan.Hold makes wait as in the kernel.
func held(t *testing.T) (*Library, *nth.Plan) {
	t.Helper()
	plan := new(nth.Plan)
	lib := must.Get(Open(Config{Provider: nth.Wrap(soft.Default(), plan), Device: "soft0"}))(t)
	t.Cleanup(func() { must.Do(t, lib.Close()) })
	return lib, plan
}

// returns runs fn, and fails the test if fn waits.
func returns(t *testing.T, what string, fn func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- fn() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-testContext(t).Done():
		t.Errorf("%s waits for the kernel", what)
	}
}

// Rule: while the kernel destroys an identifier, which may take it long, other calls of the channel go on. Events of
// the provider come when it is done. (The bug: the channel's mutex was held, so that TryGetEvent, Ready and WriteEvent
// waited, and GetEvent beyond its context.)
func TestDestroyHoldsUpNoCallOfTheChannel(t *testing.T) {
	lib, plan := held(t)
	ctx := testContext(t)
	ch := must.Get(lib.CreateEventChannel())(t)
	one := must.Get(lib.CreateID(ch, nil, verbs.PSTCP))(t)
	two := must.Get(lib.CreateID(ch, nil, verbs.PSTCP))(t)
	entered, release := plan.Hold("rdma_destroy_id")
	defer release()
	destroyed := make(chan error, 1)
	go func() { destroyed <- one.Destroy(ctx) }()
	<-entered
	returns(t, "ResolveAddr", func() error {
		return two.ResolveAddr(ctx, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 1), time.Second)
	})
	returns(t, "TryGetEvent", func() error { return second(ch.TryGetEvent()) })
	returns(t, "Ready", func() error { return second(ch.Ready()) })
	returns(t, "GetEvent with a context that ends", func() error {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if _, err := ch.GetEvent(short); !errors.Is(err, context.DeadlineExceeded) {
			return errors.Join(errors.New("want the error of the context"), err)
		}
		return nil
	})
	returns(t, "WriteEvent", func() error { return two.WriteEvent(verbs.CMUser, 7, nil) })
	returns(t, "GetEvent of an event of WriteEvent", func() error {
		ev, err := ch.GetEvent(ctx)
		if err == nil {
			ev.Ack()
		}
		return err
	})
	release()
	must.Do(t, <-destroyed)
	ev := must.Get(ch.GetEvent(ctx))(t)
	if ev.ID != two || ev.Type != verbs.CMAddrResolved {
		t.Errorf("event %v, want ADDR_RESOLVED of the second identifier", ev.Type)
	}
	ev.Ack()
	must.Do(t, two.Destroy(ctx))
	must.Do(t, ch.Destroy())
}

func second[T any](_ T, err error) error { return err }

// Rule: an event is taken while the library opens a device. (The bug: the mutex that is held meanwhile guarded the
// identifiers, too.)
func TestEventsComeWhileADeviceIsOpened(t *testing.T) {
	lib, plan := held(t)
	ctx := testContext(t)
	ch := must.Get(lib.CreateEventChannel())(t)
	id := must.Get(lib.CreateID(ch, nil, verbs.PSTCP))(t)
	must.Do(t, id.ResolveAddr(ctx, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 1), time.Second))
	entered, release := plan.Hold("ibv_open_device")
	defer release()
	opened := make(chan error, 1)
	go func() { opened <- second(lib.GetDevices()) }()
	<-entered
	returns(t, "GetEvent", func() error {
		ev, err := ch.GetEvent(ctx)
		if err == nil {
			ev.Ack()
		}
		return err
	})
	release()
	must.Do(t, <-opened)
	must.Do(t, id.Destroy(ctx))
	must.Do(t, ch.Destroy())
}

// Rule: the end of a request never waits for the kernel, because it comes with the reactor's turn held: a copy that is
// not kept is freed by another goroutine, and meanwhile other messages are copied. Before a domain is closed, they are
// all freed. (The bug: End deregistered it, with the mutex of all copies locked.)
func TestACopyIsFreedWithoutTheTurn(t *testing.T) {
	lib, plan := held(t)
	dev := must.Get(lib.device("soft0"))(t)
	_, large, err := dev.bounce.copy(dev.pd, make([]byte, keptBytes+1))
	must.Do(t, err)
	entered, release := plan.Hold("ibv_dereg_mr")
	defer release()
	returns(t, "End", func() error { return dev.do(func() error { large.End(); return nil }) })
	<-entered
	returns(t, "another copy", func() error {
		_, small, err := dev.bounce.copy(dev.pd, make([]byte, 1))
		if err == nil {
			small.End()
		}
		return err
	})
	release()
	must.Do(t, dev.bounce.drop(nil))
	if n := large.mem.Bytes(); n != nil {
		t.Errorf("a copy of %d bytes is mapped after drop", len(n))
	}
}
