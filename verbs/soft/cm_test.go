package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// A connection: private data in both directions, depths, addresses, states, and the events after
// a disconnect.
func TestCMConnect(t *testing.T) {
	inBoth(t, func(t *testing.T, r *cmRig) {
		l := r.b.listen(0)
		ida := r.a.resolve(l.LocalAddr())
		if r.state(ida) != verbs.QPSInit {
			t.Errorf("after CreateQP the queue pair is in %v, receives could not be posted", r.state(ida))
		}
		must.Do(t, ida.Connect(&verbs.ConnParam{PrivateData: []byte("ask"), ResponderResources: 3, InitiatorDepth: 9, RetryCount: 5, RNRRetryCount: 6}))
		ev := r.b.event(verbs.CMConnectRequest)
		idb := ev.ID
		if ev.ListenID != l || idb.UserData() != 7 || idb.Device() != "b" || idb.LocalAddr() != l.LocalAddr() || idb.PeerAddr() != ida.LocalAddr() || ida.PeerAddr() != l.LocalAddr() {
			t.Errorf("the request came to %v as %v from %v at %v, listener %v", idb.LocalAddr(), idb, idb.PeerAddr(), ida.LocalAddr(), ev.ListenID)
		}
		if c := ev.Conn; string(c.PrivateData[:4]) != "ask\x00" || len(c.PrivateData) != verbs.MaxPrivateConnect || c.ResponderResources != 9 || c.InitiatorDepth != 3 ||
			c.RetryCount != 5 || c.RNRRetryCount != 6 || c.QPNum != ida.QP().Num() {
			t.Errorf("the request says %+v", c)
		}
		r.b.qp(idb)
		must.Do(t, idb.Accept(&verbs.ConnParam{PrivateData: []byte("yes"), ResponderResources: 4, InitiatorDepth: 0xff, RetryCount: 2, RNRRetryCount: 7}))
		ev = r.a.event(verbs.CMEstablished)
		if c := ev.Conn; string(c.PrivateData[:4]) != "yes\x00" || c.InitiatorDepth != 4 || c.ResponderResources != 3 || c.QPNum != idb.QP().Num() {
			t.Errorf("the acceptance says %+v", c)
		}
		r.b.event(verbs.CMEstablished)
		a := must.Get(ida.QP().Query())(t)
		b := must.Get(idb.QP().Query())(t)
		if a.State != verbs.QPSRTS || b.State != verbs.QPSRTS || a.PathMTU != verbs.MTUJumbo || b.PathMTU != a.PathMTU {
			t.Errorf("established in %v and %v with path MTUs %v and %v", a.State, b.State, a.PathMTU, b.PathMTU)
		}
		if a.DestQPN != idb.QP().Num() || b.DestQPN != ida.QP().Num() || a.RQPSN != b.SQPSN || b.RQPSN != a.SQPSN {
			t.Errorf("the queue pairs are not each other's: %+v and %+v", a, b)
		}
		if a.MaxRdAtomic != 4 || b.MaxDestRdAtomic != 4 || a.MaxDestRdAtomic != 3 || b.MaxRdAtomic != 3 {
			t.Errorf("depths: a asks %d of b's %d, b asks %d of a's %d", a.MaxRdAtomic, b.MaxDestRdAtomic, b.MaxRdAtomic, a.MaxDestRdAtomic)
		}
		if a.RetryCnt != 5 || b.RetryCnt != 2 || a.RNRRetry != 7 || b.RNRRetry != 6 || a.Timeout != verbs.DefaultAckTimeout || b.Timeout != a.Timeout {
			t.Errorf("retries: a %d/%d, b %d/%d; timeouts %d and %d", a.RetryCnt, a.RNRRetry, b.RetryCnt, b.RNRRetry, a.Timeout, b.Timeout)
		}
		if qa, qb := ida.QP().(*queuePair), idb.QP().(*queuePair); qa.peerWaits || !qb.peerWaits {
			t.Errorf("a's peer repeats without end after RNR NAKs: %v, b's: %v; want false, true", qa.peerWaits, qb.peerWaits)
		}
		must.Do(t, ida.Disconnect())
		r.b.event(verbs.CMDisconnected)
		r.a.event(verbs.CMDisconnected)
		if r.state(ida) != verbs.QPSErr || r.state(idb) != verbs.QPSRTS {
			t.Errorf("disconnected in %v and %v, want ERR, and RTS where the other side asked", r.state(ida), r.state(idb))
		}
		must.Do(t, idb.Disconnect())
		if r.state(idb) != verbs.QPSErr {
			t.Errorf("after Disconnect in %v, want ERR", r.state(idb))
		}
		r.a.event(verbs.CMTimewaitExit)
		r.b.event(verbs.CMTimewaitExit)
		r.closeAll(ida, idb, l)
	})
}

// Whichever datagram of the handshake or of the disconnect is lost, the connection is made and
// ended, with the same events.
func TestCMLosesAnyDatagram(t *testing.T) {
	inBoth(t, func(t *testing.T, r *cmRig) {
		for _, side := range []bool{false, true} {
			from, to := r.a, r.b
			if side {
				from, to = to, from
			}
			for n := uint64(1); n <= 4; n++ {
				for _, count := range []uint64{1, 3} {
					r.lose(from, to, n, n+count-1)
					l, ida, idb := r.pair()
					must.Do(t, ida.Disconnect())
					r.a.event(verbs.CMDisconnected)
					r.b.event(verbs.CMDisconnected)
					r.a.event(verbs.CMTimewaitExit)
					r.b.event(verbs.CMTimewaitExit)
					r.closeAll(ida, idb, l)
				}
			}
		}
	})
}

// No such node, no listener, backlog full, rejected by the user.
func TestCMRefusals(t *testing.T) {
	inBoth(t, func(t *testing.T, r *cmRig) {
		nobody := r.a.resolve(netip.MustParseAddrPort("10.9.9.9:1"))
		must.Do(t, nobody.Connect(nil))
		if ev := r.a.event(verbs.CMUnreachable); ev.Status != -int(syscall.ETIMEDOUT) || ev.ID != nobody {
			t.Errorf("no such node: %+v, want status -ETIMEDOUT", ev)
		}
		deaf := r.a.resolve(netip.AddrPortFrom(r.b.addr, 4711))
		must.Do(t, deaf.Connect(nil))
		if ev := r.a.event(verbs.CMRejected); ev.Status != verbs.RejInvalidServiceID || r.state(deaf) != verbs.QPSErr {
			t.Errorf("no listener: %+v with the queue pair in %v", ev, r.state(deaf))
		}
		l := r.b.listen(1)
		one := r.a.resolve(l.LocalAddr())
		must.Do(t, one.Connect(nil))
		asked := r.b.event(verbs.CMConnectRequest).ID
		two := r.a.resolve(l.LocalAddr())
		must.Do(t, two.Connect(nil))
		if ev := r.a.event(verbs.CMRejected); ev.ID != two || ev.Status != verbs.RejNoResources {
			t.Errorf("backlog full: %+v", ev)
		}
		must.Do(t, asked.Reject([]byte("not today")))
		ev := r.a.event(verbs.CMRejected)
		if ev.ID != one || ev.Status != verbs.RejConsumer || string(ev.Conn.PrivateData[:10]) != "not today\x00" || len(ev.Conn.PrivateData) != verbs.MaxPrivateReject {
			t.Errorf("refused: %+v", ev)
		}
		if err := one.Connect(nil); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("connecting again with what was refused: %v, want ErrInvalid", err)
		}
		r.closeAll(nobody, deaf, one, two, asked, l)
	})
}

// Both sides disconnect at once: one DISCONNECTED each.
func TestCMDisconnectBoth(t *testing.T) {
	inBoth(t, func(t *testing.T, r *cmRig) {
		l, ida, idb := r.pair()
		must.Do(t, ida.Disconnect())
		must.Do(t, idb.Disconnect())
		for _, e := range []*cmEnd{r.a, r.b} {
			e.event(verbs.CMDisconnected)
			e.event(verbs.CMTimewaitExit)
		}
		r.closeAll(ida, idb, l)
	})
}

// stages are the points of a connection at which one side can give up. Each brings a fresh rig to
// its point and returns the open ids.
var stages = []struct {
	name string
	ids  int
	ends bool // closing one side produces an event at the other
	make func(r *cmRig) []verbs.CMID
}{
	{"created", 1, false, func(r *cmRig) []verbs.CMID { return []verbs.CMID{r.a.id()} }},
	{"bound", 1, false, func(r *cmRig) []verbs.CMID {
		id := r.a.id()
		must.Do(r.t, id.Bind(netip.AddrPort{}))
		return []verbs.CMID{id}
	}},
	{"listening", 1, false, func(r *cmRig) []verbs.CMID { return []verbs.CMID{r.b.listen(0)} }},
	{"resolved", 2, false, func(r *cmRig) []verbs.CMID {
		l := r.b.listen(0)
		return []verbs.CMID{r.a.resolve(l.LocalAddr()), l}
	}},
	{"asking", 2, false, func(r *cmRig) []verbs.CMID {
		l := r.b.listen(0)
		id := r.a.resolve(l.LocalAddr())
		must.Do(r.t, id.Connect(nil))
		return []verbs.CMID{id, l}
	}},
	{"asked, not told", 2, false, func(r *cmRig) []verbs.CMID {
		l := r.b.listen(0)
		id := r.a.resolve(l.LocalAddr())
		must.Do(r.t, id.Connect(nil))
		b := r.b.ch.(*cmChannel)
		r.until("the request is queued", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.queue) == 1
		})
		return []verbs.CMID{id, l}
	}},
	{"asked", 3, true, func(r *cmRig) []verbs.CMID {
		l := r.b.listen(0)
		id := r.a.resolve(l.LocalAddr())
		must.Do(r.t, id.Connect(nil))
		return []verbs.CMID{id, r.b.event(verbs.CMConnectRequest).ID, l}
	}},
	{"accepted", 3, true, func(r *cmRig) []verbs.CMID {
		l := r.b.listen(0)
		id := r.a.resolve(l.LocalAddr())
		must.Do(r.t, id.Connect(nil))
		idb := r.b.event(verbs.CMConnectRequest).ID
		r.b.qp(idb)
		must.Do(r.t, idb.Accept(nil))
		return []verbs.CMID{id, idb, l}
	}},
	{"established", 3, true, func(r *cmRig) []verbs.CMID { l, a, b := r.pair(); return []verbs.CMID{a, b, l} }},
	{"disconnecting", 3, true, func(r *cmRig) []verbs.CMID {
		l, a, b := r.pair()
		must.Do(r.t, a.Disconnect())
		return []verbs.CMID{a, b, l}
	}},
}

// An identifier closed at any stage, in any order, leaves nothing behind, and the other side gets
// an event if it is connected or connecting.
func TestCMCloseHalfway(t *testing.T) {
	for _, stage := range stages {
		for first := range stage.ids {
			t.Run(fmt.Sprintf("%s, closing %d", stage.name, first), func(t *testing.T) {
				inBoth(t, func(t *testing.T, r *cmRig) {
					ids := stage.make(r)
					must.Do(t, ids[first].Close())
					if stage.ends && first < 2 {
						other := []*cmEnd{r.b, r.a}[first]
						for over := false; !over; {
							switch other.any().Type {
							case verbs.CMRejected, verbs.CMDisconnected, verbs.CMUnreachable:
								over = true
							}
						}
					}
					r.closeAll(ids...) // the closed one again: idempotent
					for _, id := range ids {
						if err := id.Connect(nil); !errors.Is(err, verbs.ErrClosed) {
							t.Errorf("Connect on a closed identifier: %v, want ErrClosed", err)
						}
					}
				})
			})
		}
	}
}

// Without a queue pair the user readies its own, and Accept establishes.
func TestCMWithoutQueuePair(t *testing.T) {
	r := newRig(t, false)
	l := r.b.listen(0)
	id := r.a.id()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), time.Second))
	r.a.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(time.Second))
	r.a.event(verbs.CMRouteResolved)
	if err := id.Connect(nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Connect without a queue pair and its number: %v, want ErrInvalid", err)
	}
	must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 0x4242}))
	ev := r.b.event(verbs.CMConnectRequest)
	if ev.Conn.QPNum != 0x4242 {
		t.Errorf("the request names QP 0x%x", ev.Conn.QPNum)
	}
	must.Do(t, ev.ID.Accept(&verbs.ConnParam{QPNum: 0x2424, PrivateData: []byte("hm")}))
	if c := r.a.event(verbs.CMConnectResponse).Conn; c.QPNum != 0x2424 || string(c.PrivateData[:3]) != "hm\x00" {
		t.Errorf("the response says %+v", c)
	}
	must.Do(t, id.Accept(nil))
	r.a.event(verbs.CMEstablished)
	r.b.event(verbs.CMEstablished)
	r.closeAll(id, ev.ID, l)
}

// The path has the smaller MTU of the two devices.
func TestCMSmallerMTU(t *testing.T) {
	for _, c := range [][3]verbs.MTU{{0, verbs.MTU512, verbs.MTU512}, {verbs.MTU1024, 0, verbs.MTU1024}, {verbs.MTU2048, verbs.MTU256, verbs.MTU256}} {
		r := newRig(t, false, func(cfg *Config) { cfg.Devices[0].MTU, cfg.Devices[1].MTU = c[0], c[1] })
		l, ida, idb := r.pair()
		for _, id := range []verbs.CMID{ida, idb} {
			a := must.Get(id.QP().Query())(t)
			if a.PathMTU != c[2] {
				t.Errorf("devices with MTU %v and %v: %v has path MTU %v", c[0], c[1], id, a.PathMTU)
			}
		}
		r.closeAll(ida, idb, l)
	}
}

// Rule: events are taken once each and in the order of pushing, whatever is withdrawn in between.
// Taken events leave no reference in the queue's memory, and an empty queue has a capacity of at
// most keptEvents.
func TestEventQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bell := must.Get(sys.NewEvent())(t)
		defer bell.Close()
		c := &cmChannel{notifier: bell}
		ids := []*cmID{{}, {}, {}}
		type event struct{ id, status int }
		var model []event
		pushed := 0
		take := func(t *rapid.T) {
			ev, ok, err := c.GetEvent()
			if err != nil || ok != (len(model) > 0) {
				t.Fatalf("an event %v, %v; %d wait", ok, err, len(model))
			}
			if !ok {
				return
			}
			if want := model[0]; ev.Status != want.status {
				t.Fatalf("event %d, want %d", ev.Status, want.status)
			}
			ids[model[0].id].unacked.Add(-1)
			model = model[1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 2 * keptEvents}).Draw(t, "events") {
					e := event{rapid.IntRange(0, 2).Draw(t, "of"), pushed}
					pushed++
					c.push(cmEvent{ev: verbs.CMEvent{Status: e.status}, id: ids[e.id]})
					model = append(model, e)
				}
			},
			"take": take,
			"take most": func(t *rapid.T) {
				for len(model) > 1 {
					take(t)
				}
			},
			"withdraw": func(t *rapid.T) {
				n := rapid.IntRange(0, 2).Draw(t, "of")
				out, ok := c.withdraw(ids[n], func(e *cmEvent) bool { return e.id == ids[n] })
				if !ok {
					t.Fatal("nothing was withdrawn though all is acknowledged")
				}
				var want, got []int
				for _, e := range model {
					if e.id == n {
						want = append(want, e.status)
					}
				}
				for _, e := range out {
					got = append(got, e.ev.Status)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("withdrawn: %v, want %v", got, want)
				}
				model = slices.DeleteFunc(model, func(e event) bool { return e.id == n })
			},
			"": func(t *rapid.T) {
				if n := len(c.queue) - c.taken; n != len(model) {
					t.Fatalf("%d wait, want %d", n, len(model))
				}
				for i, e := range c.queue[:cap(c.queue)] {
					if waits := i >= c.taken && i < len(c.queue); !waits && e.id != nil {
						t.Fatalf("place %d of %d to %d keeps an event", i, c.taken, len(c.queue))
					}
				}
				if len(model) == 0 && cap(c.queue) > keptEvents {
					t.Fatalf("an empty queue has room for %d", cap(c.queue))
				}
			},
		})
	})
}
