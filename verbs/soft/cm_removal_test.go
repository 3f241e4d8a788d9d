package soft

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// TestRemovalIsToldToEveryIdentifierOnce: the connected identifier, the listener, the request not
// yet reported to the user and a merely bound identifier get DEVICE_REMOVAL once. An identifier
// bound to all devices and those of another device do not. All can only be closed.
func TestRemovalIsToldToEveryIdentifierOnce(t *testing.T) {
	r := newRig(t, false)
	listener, ida, idb := r.pair()
	bound := r.b.id()
	must.Do(t, bound.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	wild := r.b.id()
	must.Do(t, wild.Listen(0))
	again := r.a.resolve(listener.LocalAddr())
	must.Do(t, again.Connect(nil))
	r.settleUntilQueued(r.b)
	must.Do(t, r.p.Remove("b"))
	must.Do(t, r.p.Restore("b"))
	must.Do(t, r.p.Remove("b")) // the new device: no identifier gets the event twice
	child := r.b.event(verbs.CMConnectRequest).ID
	bound.(*cmID).join(bound.(*cmID).dev) // as a Bind concurrent with the removal
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
	// The peer gets no answer: the connection stays until it is used or ended.
	must.Do(t, ida.Disconnect())
	if ev := r.a.event(verbs.CMUnreachable); ev.ID != again { // sent before, never answered
		t.Fatalf("%v is unreachable, want %v", ev.ID, again)
	}
	if ev := r.a.event(verbs.CMDisconnected); ev.Status == 0 {
		t.Error("disconnecting from a removed device was answered")
	}
	r.a.event(verbs.CMTimewaitExit)
	r.closeAll(ida, again)
}

// settleUntilQueued lets time pass until an event is queued at the end, and leaves it there.
func (r *cmRig) settleUntilQueued(e *cmEnd) {
	r.t.Helper()
	ch := e.ch.(*cmChannel)
	r.until("an event at "+e.name, func() bool {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		return len(ch.queue) > 0
	})
}

// TestListenerOnAllDevicesFollowsARestoredOne: it receives requests through the new device, and
// releases the old one.
func TestListenerOnAllDevicesFollowsARestoredOne(t *testing.T) {
	r := newRig(t, false)
	wild := r.b.id()
	must.Do(t, wild.Listen(0))
	old := r.b.ctx.(*deviceContext)
	for range 3 {
		must.Do(t, r.p.Remove("b"))
		must.Do(t, r.p.Restore("b"))
	}
	if n, h := len(wild.(*cmID).listeners), len(wild.(*cmID).holds); n != 2 || h != 2 {
		t.Errorf("it listens on %d devices and holds %d, want 2", n, h)
	}
	if n := old.dev.opens; n != 1 {
		t.Errorf("the old device has %d users, want the context", n)
	}
	stays := must.Get(r.p.Open("b"))(t) // on the fabric until the machine has finished
	ida := r.a.resolve(netip.AddrPortFrom(r.b.addr, wild.LocalAddr().Port()))
	must.Do(t, ida.Connect(nil))
	ev := r.b.event(verbs.CMConnectRequest)
	if ev.ID.Device() != "b" {
		t.Errorf("the request came through %q", ev.ID.Device())
	}
	must.Do(t, ev.ID.Reject([]byte("no")))
	r.a.event(verbs.CMRejected)
	r.closeAll(ev.ID, wild, ida)
	r.settle()
	must.Do(t, stays.Close())
}

// TestNoDevicesAtAll: without devices an address is not resolved, and a listener on all devices
// waits for one.
func TestNoDevicesAtAll(t *testing.T) {
	r := newRig(t, false)
	must.Do(t, r.p.Remove("a"))
	must.Do(t, r.p.Remove("b"))
	id := r.a.id()
	if err := id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(r.b.addr, 1), time.Second); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("resolving without a device: %v", err)
	}
	bound := r.a.id()
	if err := bound.Bind(netip.AddrPortFrom(r.a.addr, 0)); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("binding to a removed device: %v", err)
	}
	wild := r.a.id()
	must.Do(t, wild.Listen(0))
	must.Do(t, r.p.Restore("b"))
	if !wild.(*cmID).listensOn(r.p.device("b")) {
		t.Error("the listener does not follow the device")
	}
	r.closeAll(id, bound, wild)
}

// Many connections from many goroutines on a bad link, in real time: each ends, and none leaves
// anything behind.
func TestCMStress(t *testing.T) {
	r := newRig(t, true)
	r.fab.SetAll(fabric.Link{Loss: 0.1, Dup: 0.1, Reorder: 0.1})
	l := r.b.id()
	must.Do(t, l.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	must.Do(t, l.Listen(0))
	stop := make(chan struct{})
	var server, clients sync.WaitGroup
	server.Go(func() { serve(t, r, stop) })
	for g := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 25 {
				dial(t, r, l.LocalAddr(), rng)
			}
		})
	}
	clients.Wait()
	close(stop)
	server.Wait()
	r.fab.SetAll(fabric.Link{})
	r.closeAll(l)
}

// serve answers requests in all ways and closes identifiers that ended.
func serve(t *testing.T, r *cmRig, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(99, 1))
	open := map[verbs.CMID]bool{}
	finish := func(id verbs.CMID) {
		if open[id] {
			delete(open, id)
			if err := id.Close(); err != nil {
				t.Errorf("closing %v: %v", id, err)
			}
		}
	}
	for {
		ev, ok, err := r.b.ch.GetEvent()
		if err != nil {
			t.Error(err)
			return
		}
		if !ok {
			select {
			case <-stop:
				for id := range open {
					finish(id)
				}
				if ev, ok, _ := r.b.ch.GetEvent(); ok { // a request of the listener, queued in the meantime
					r.b.ch.Ack(ev)
					open[ev.ID] = true
					continue
				}
				return
			case <-r.wake:
			}
			continue
		}
		r.b.ch.Ack(ev)
		switch ev.Type {
		case verbs.CMConnectRequest:
			open[ev.ID] = true
			switch rng.IntN(8) {
			case 0:
				_ = ev.ID.Reject([]byte("no")) // the peer may have given up
			case 1:
				finish(ev.ID)
			default:
				init := &verbs.QPInitAttr{SendCQ: r.b.cq, RecvCQ: r.b.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
				_ = ev.ID.CreateQP(r.b.pd, init) // likewise
				_ = ev.ID.Accept(nil)
			}
		case verbs.CMEstablished:
			if rng.IntN(4) == 0 {
				_ = ev.ID.Disconnect()
			}
		case verbs.CMTimewaitExit, verbs.CMRejected, verbs.CMUnreachable:
			finish(ev.ID)
		}
	}
}

// dial makes one connection on a channel of its own, and ends it in a random way.
func dial(t *testing.T, r *cmRig, to netip.AddrPort, rng *rand.Rand) {
	ch, err := r.p.CreateCMChannel()
	if err != nil {
		t.Error(err)
		return
	}
	id, err := ch.CreateID(verbs.PSTCP, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := id.Close(); err != nil {
			t.Errorf("closing %v: %v", id, err)
		}
		if err := ch.Close(); err != nil {
			t.Errorf("closing %v: %v", ch, err)
		}
	}()
	ok := func(err error) bool {
		if err != nil {
			t.Errorf("%v: %v", id, err)
		}
		return err == nil
	}
	if !ok(id.ResolveAddr(netip.AddrPortFrom(r.a.addr, 0), to, 0)) || !ok(id.ResolveRoute(0)) {
		return
	}
	init := &verbs.QPInitAttr{SendCQ: r.a.cq, RecvCQ: r.a.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	if !ok(id.CreateQP(r.a.pd, init)) || !ok(id.Connect(nil)) {
		return
	}
	if rng.IntN(8) == 0 {
		return // and close at once
	}
	wake := make(chan struct{}, 1)
	ch.Notify(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	ended := 0
	for late := time.After(patience); ; {
		ev, got, err := ch.GetEvent()
		if !ok(err) {
			return
		}
		if !got {
			select {
			case <-wake:
			case <-late:
				t.Errorf("%v: no end within %v", id, patience)
				return
			}
			continue
		}
		ch.Ack(ev)
		switch ev.Type {
		case verbs.CMEstablished:
			if !ok(id.Disconnect()) {
				return
			}
		case verbs.CMDisconnected:
			if ended++; ended > 1 {
				t.Errorf("%v: DISCONNECTED twice", id)
			}
			if rng.IntN(2) == 0 {
				return
			}
		case verbs.CMTimewaitExit, verbs.CMRejected, verbs.CMUnreachable:
			return
		}
	}
}
