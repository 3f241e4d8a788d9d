package soft

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestRemovalIsToldToEveryIdentifierOnce: the connected one, the listener, the
// request nobody was told of yet, and one that is merely bound; not one bound to
// all devices, nor those of another device. All can only be closed.
func TestRemovalIsToldToEveryIdentifierOnce(t *testing.T) {
	r := newRig(t, false)
	listener, ida, idb := r.pair()
	bound := r.b.id()
	must(t, bound.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	wild := r.b.id()
	must(t, wild.Listen(0))
	again := r.a.resolve(listener.LocalAddr())
	must(t, again.Connect(nil))
	r.settleUntilQueued(r.b)
	must(t, r.p.Remove("b"))
	must(t, r.p.Restore("b"))
	must(t, r.p.Remove("b")) // the new one: nobody is told twice
	child := r.b.event(verbs.CMConnectRequest).ID
	bound.(*cmID).join(bound.(*cmID).dev) // as a Bind that came across the removal
	var told []verbs.CMID
	for range 4 {
		ev := r.b.event(verbs.CMDeviceRemoval)
		told = append(told, ev.ID)
	}
	if ev, ok := r.b.take(); ok {
		t.Fatalf("one event too many: %v for %v", ev.Type, ev.ID)
	}
	for _, id := range []verbs.CMID{listener, idb, bound, child} {
		if !slices.Contains(told, id) {
			t.Errorf("%v was not told", id)
		}
		gone(t, "Reject", second(0, id.Reject(nil)))
		if err := id.CreateQP(r.b.pd, &verbs.QPInitAttr{}); !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("a queue pair on %v: %v", id, err)
		}
	}
	gone(t, "Disconnect", idb.Disconnect())
	gone(t, "Accept", child.Accept(nil))
	r.closeAll(idb, child, bound, listener, wild)
	// To the peer it is silence: the connection goes on until it is used or ended.
	must(t, ida.Disconnect())
	if ev := r.a.event(verbs.CMUnreachable); ev.ID != again { // sent before, answered by nobody
		t.Fatalf("%v is unreachable, want %v", ev.ID, again)
	}
	if ev := r.a.event(verbs.CMDisconnected); ev.Status == 0 {
		t.Error("disconnecting from a removed device was answered")
	}
	r.a.event(verbs.CMTimewaitExit)
	r.closeAll(ida, again)
}

// settleUntilQueued lets time pass until the end has an event, which stays
// there.
func (r *cmRig) settleUntilQueued(e *cmEnd) {
	r.t.Helper()
	ch := e.ch.(*cmChannel)
	r.until("an event at "+e.name, func() bool {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		return len(ch.queue) > 0
	})
}

// TestListenerOnAllDevicesFollowsARestoredOne: it hears of requests that come
// through the new device, and lets the old one go.
func TestListenerOnAllDevicesFollowsARestoredOne(t *testing.T) {
	r := newRig(t, false)
	wild := r.b.id()
	must(t, wild.Listen(0))
	old := r.b.ctx.(*deviceContext)
	for range 3 {
		must(t, r.p.Remove("b"))
		must(t, r.p.Restore("b"))
	}
	if n, h := len(wild.(*cmID).listeners), len(wild.(*cmID).holds); n != 2 || h != 2 {
		t.Errorf("it listens on %d devices and holds %d, want 2", n, h)
	}
	if n := old.dev.opens; n != 1 {
		t.Errorf("the old device has %d users, want the context", n)
	}
	stays := must1(r.p.Open("b"))(t) // on the fabric until the machine has done
	ida := r.a.resolve(netip.AddrPortFrom(r.b.addr, wild.LocalAddr().Port()))
	must(t, ida.Connect(nil))
	ev := r.b.event(verbs.CMConnectRequest)
	if ev.ID.Device() != "b" {
		t.Errorf("the request came through %q", ev.ID.Device())
	}
	must(t, ev.ID.Reject([]byte("no")))
	r.a.event(verbs.CMRejected)
	r.closeAll(ev.ID, wild, ida)
	r.settle()
	must(t, stays.Close())
}

func must1[T any](v T, err error) func(tb) T {
	return func(t tb) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// TestNoDevicesAtAll: an address is not resolved, and a listener on all devices
// waits for one.
func TestNoDevicesAtAll(t *testing.T) {
	r := newRig(t, false)
	must(t, r.p.Remove("a"))
	must(t, r.p.Remove("b"))
	id := r.a.id()
	if err := id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(r.b.addr, 1), time.Second); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("resolving without a device: %v", err)
	}
	bound := r.a.id()
	if err := bound.Bind(netip.AddrPortFrom(r.a.addr, 0)); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("binding to a removed device: %v", err)
	}
	wild := r.a.id()
	must(t, wild.Listen(0))
	must(t, r.p.Restore("b"))
	if !wild.(*cmID).listensOn(r.p.device("b")) {
		t.Error("the listener does not follow the device")
	}
	r.closeAll(id, bound, wild)
}
