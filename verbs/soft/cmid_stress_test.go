package soft

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Many connections from many goroutines on a bad link, in real time: each ends,
// and nothing is left.
func TestCMStress(t *testing.T) {
	r := newRig(t, true)
	r.fab.SetAll(fabric.Link{Loss: 0.1, Dup: 0.1, Reorder: 0.1})
	l := r.b.id()
	must(t, l.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	must(t, l.Listen(0))
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

// serve answers in all ways and closes what ended.
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
				if ev, ok, _ := r.b.ch.GetEvent(); ok { // queued meanwhile, of the listener
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

// dial makes one connection on a channel of its own, and ends it somehow.
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
