//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// cmRig is a rig with a channel of connection events.
type cmRig struct {
	*rig
	ch verbs.CMChannel
}

func newCMRig(t *testing.T) *cmRig {
	r := &cmRig{rig: newRig(t, Config{})}
	var err error
	r.ch, err = r.ctx.p.CreateCMChannel()
	must.Do(t, err)
	t.Cleanup(func() { _ = r.ch.Close() })
	return r
}

// event takes the next event, which the null device queued within the call that caused it,
// acknowledges it and checks its type.
func (r *cmRig) event(want verbs.CMEventType) verbs.CMEvent {
	r.t.Helper()
	ev, ok, err := r.ch.GetEvent()
	must.Do(r.t, err)
	if !ok || ev.Type != want {
		r.t.Fatalf("event %+v, %v; want %v", ev, ok, want)
	}
	r.ch.Ack(ev)
	return ev
}

func (r *cmRig) id() verbs.CMID {
	r.t.Helper()
	id := must.Get(r.ch.CreateID(verbs.PSTCP, 0))(r.t)
	r.t.Cleanup(func() { _ = id.Close() })
	return id
}

var null0 = netip.MustParseAddr("127.0.0.1")

// routed returns an identifier that is ready to connect to a port.
func (r *cmRig) routed(port uint16) verbs.CMID {
	r.t.Helper()
	id := r.id()
	must.Do(r.t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(null0, port), time.Second))
	r.event(verbs.CMAddrResolved)
	must.Do(r.t, id.ResolveRoute(time.Second))
	r.event(verbs.CMRouteResolved)
	return id
}

func (r *cmRig) listener() verbs.CMID {
	r.t.Helper()
	l := r.id()
	must.Do(r.t, l.Bind(netip.AddrPortFrom(null0, 0)))
	must.Do(r.t, l.Listen(0))
	return l
}

// Rule: private data may lie in any memory, also beside Go pointers, which cgo does not pass to
// C.
func TestPrivateDataBesidePointers(t *testing.T) {
	r := newCMRig(t)
	greeting := struct {
		self any
		data [8]byte
	}{self: new(int), data: [8]byte{1, 2, 3}}
	l := r.listener()
	must.Do(t, r.routed(l.LocalAddr().Port()).Connect(&verbs.ConnParam{QPNum: 1, PrivateData: greeting.data[:]}))
	ev := r.event(verbs.CMConnectRequest)
	if got := ev.Conn.PrivateData; len(got) < 8 || [8]byte(got[:8]) != greeting.data {
		t.Errorf("the peer got % x", got)
	}
	must.Do(t, ev.ID.Reject(greeting.data[:]))
	if got := r.event(verbs.CMRejected).Conn.PrivateData; len(got) < 8 || [8]byte(got[:8]) != greeting.data {
		t.Errorf("the refused one got % x", got)
	}
	must.Do(t, ev.ID.Close())
}

// Rule: Accept with a queue pair that the user has closed is an error and makes no connection.
func TestAcceptOnAClosedQueuePair(t *testing.T) {
	r := newCMRig(t)
	l := r.listener()
	must.Do(t, r.routed(l.LocalAddr().Port()).Connect(&verbs.ConnParam{QPNum: 1}))
	id := r.event(verbs.CMConnectRequest).ID
	defer id.Close()
	must.Do(t, id.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	must.Do(t, id.QP().Close())
	if err := id.Accept(&verbs.ConnParam{}); !errors.Is(err, syscall.EBADF) {
		t.Errorf("accepting: %v, want EBADF", err)
	}
}

// Rule: a second acknowledgement of an event does not count for the next event.
func TestSecondAckOfAConnectionEvent(t *testing.T) {
	r := newCMRig(t)
	id := r.id()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(null0, 1), time.Second))
	ev := r.event(verbs.CMAddrResolved)
	r.ch.Ack(ev)
	must.Do(t, id.ResolveRoute(time.Second))
	next, ok, err := r.ch.GetEvent()
	if err != nil || !ok {
		t.Fatalf("no event: %v", err)
	}
	if err := id.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing with an unacknowledged event: %v", err)
	}
	r.ch.Ack(next)
	must.Do(t, id.Close())
}

// Rule: a request and the events after it are each delivered for their own identifier, however
// many goroutines take events: an event of a new identifier is never delivered for its listener.
func TestEventsOfARequestTakenAtOnce(t *testing.T) {
	r := newCMRig(t)
	l := r.listener()
	rounds := 3000
	if raceEnabled {
		rounds = 300
	}
	for range rounds {
		id := r.routed(l.LocalAddr().Port())
		must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 1}))
		must.Do(t, id.Close()) // the request is followed by its DISCONNECTED event
		var wg sync.WaitGroup
		var mu sync.Mutex
		var got []verbs.CMEvent
		for range 3 {
			wg.Go(func() {
				for {
					ev, ok, err := r.ch.GetEvent()
					if err != nil || !ok {
						return
					}
					mu.Lock()
					got = append(got, ev)
					mu.Unlock()
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		for _, ev := range got {
			if ev.Type != verbs.CMConnectRequest && ev.ID == l {
				t.Fatalf("the listener got %v", ev.Type)
			}
			r.ch.Ack(ev)
		}
		for _, ev := range got {
			if ev.Type == verbs.CMConnectRequest {
				must.Do(t, ev.ID.Close())
			}
		}
	}
}

// Rule: a REJECTED event after ESTABLISHED is delivered as DISCONNECTED and leaves the queue pair
// to Disconnect. Linux sends a REJ if the peer closes its identifier while this side's RTU is on
// its way (cm.c, cm_destroy_id).
func TestRejectionOfAnEstablishedConnection(t *testing.T) {
	r := newCMRig(t)
	l := r.listener()
	one := r.routed(l.LocalAddr().Port())
	must.Do(t, one.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	must.Do(t, one.Connect(&verbs.ConnParam{}))
	other := r.event(verbs.CMConnectRequest).ID
	defer other.Close()
	must.Do(t, other.Accept(&verbs.ConnParam{QPNum: 1}))
	r.event(verbs.CMEstablished)
	id := one.(*cmID)
	ev := verbs.CMEvent{Type: verbs.CMRejected, ID: one, Status: verbs.RejConsumer}
	if !id.react(&ev, 0) || ev.Type != verbs.CMDisconnected || ev.Status != 0 {
		t.Errorf("the event delivered is %+v, want DISCONNECTED with status 0", ev)
	}
	state := func() verbs.QPState {
		return must.Get(one.QP().Query())(t).State
	}
	if s := state(); s != verbs.QPSRTS {
		t.Errorf("the queue pair is in %v after the event, want RTS", s)
	}
	must.Do(t, one.Disconnect())
	if s := state(); s != verbs.QPSErr {
		t.Errorf("the queue pair is in %v after Disconnect, want ERR", s)
	}
}
