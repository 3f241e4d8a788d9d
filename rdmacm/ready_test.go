package rdmacm

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// rings waits for a value of a channel that Ready has returned.
func (r *rig) rings(ready <-chan struct{}, err error) {
	r.t.Helper()
	must.Do(r.t, err)
	select {
	case <-ready:
	case <-r.ctx.Done():
		r.t.Fatal("no value came from the channel of Ready")
	}
}

// Rule: the channel of EventChannel.Ready gets a value for events of the program and of the provider, for events that
// are there already, and for Destroy.
func TestEventChannelReady(t *testing.T) {
	r := newRig(t)
	ch := must.Get(r.lib[0].CreateEventChannel())(t)
	id := must.Get(r.lib[0].CreateID(ch, nil, verbs.PSTCP))(t)
	took := func(want verbs.CMEventType) {
		t.Helper()
		ev := must.Get(ch.TryGetEvent())(t)
		for ev == nil { // the value came without an event
			r.rings(ch.Ready())
			ev = must.Get(ch.TryGetEvent())(t)
		}
		if ev.Ack(); ev.Type != want {
			t.Errorf("event %v, want %v", ev.Type, want)
		}
	}
	ready := must.Get(ch.Ready())(t)
	must.Do(t, id.WriteEvent(verbs.CMUser, 0, nil))
	r.rings(ready, nil)
	took(verbs.CMUser)
	must.Do(t, id.WriteEvent(verbs.CMUser, 0, nil))
	<-ready // the value for the event may be gone before Ready is called
	r.rings(ch.Ready())
	took(verbs.CMUser)
	ready = must.Get(ch.Ready())(t)
	must.Do(t, id.ResolveAddr(r.ctx, netip.AddrPort{}, netip.AddrPortFrom(r.at[1].Addr(), 1), time.Second))
	r.rings(ready, nil)
	took(verbs.CMAddrResolved)
	must.Do(t, id.Destroy(r.ctx))
	select {
	case <-ready: // TryGetEvent rings
	default:
	}
	must.Do(t, ch.Destroy())
	r.rings(ready, nil)
	if _, err := ch.Ready(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Ready of a channel that is destroyed returned %v, want %v", err, verbs.ErrClosed)
	}
}

// Rule: the channel of CQ.Ready gets one value for each call, for the next completion, for one that is there already,
// and for Destroy.
func TestCQReady(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in, cq := r.memory(s, 64, (*ID).RegMsgs), s.RecvCQ()
	send := func() {
		must.Do(t, s.PostRecv(1, in.Bytes(), in))
		must.Do(t, c.PostSend(2, []byte("x"), nil, verbs.SendSignaled))
		r.sent(c, 2)
	}
	ready := must.Get(cq.Ready())(t)
	select {
	case <-ready:
		t.Error("a value came without a completion")
	default:
	}
	send()
	r.rings(ready, nil)
	var wcs [2]verbs.WC
	if n := cq.Poll(wcs[:]); n != 1 {
		t.Errorf("%d completions after the value, want 1", n)
	}
	send()
	r.received(s, 1)
	select {
	case <-ready:
		t.Error("a value came that was not asked for")
	default:
	}
	send()
	for n := 0; n == 0; n = cq.Poll(wcs[:]) {
		r.rings(cq.Ready())
	}
	ready = must.Get(cq.Ready())(t)
	must.Do(t, s.DestroyQP())
	r.rings(ready, nil)
	if _, err := cq.Ready(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Ready of a CQ that is destroyed returned %v, want %v", err, verbs.ErrClosed)
	}
}

// Rule (ibv_modify_srq): an event comes when fewer receives than the limit are left, once.
func TestLimitOfASharedQueue(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(nil)
	must.Do(t, l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 8, MaxSGE: 1}))
	srq := l.SRQ()
	in := r.memory(l, 64, (*ID).RegMsgs)
	c := r.dialer(at, attr())
	done := make(chan error, 1)
	go func() { done <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	a := attr()
	a.SRQ = srq
	must.Do(t, s.CreateQP(nil, a))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-done)
	for i := range 3 {
		must.Do(t, s.PostRecv(1, in.Bytes()[8*i:8*i+8], in))
	}
	granted := must.Get(srq.Query())(t).MaxWR // devices grant more
	if err := srq.SetLimit(granted + 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a limit above the size returned %v, want %v", err, verbs.ErrInvalid)
	}
	must.Do(t, srq.SetLimit(3))
	async := must.Get(s.Device())(t).Context().Async()
	for i := range 2 { // the first message leaves two receives
		must.Do(t, c.PostSend(2, []byte("x"), nil, verbs.SendSignaled))
		r.sent(c, 2)
		r.received(s, 1)
		ev, ok, err := async.Get()
		for i == 0 && !ok && err == nil && r.ctx.Err() == nil { // a device may raise it later
			runtime.Gosched()
			ev, ok, err = async.Get()
		}
		must.Do(t, err)
		if limit := ok && ev.Type == verbs.EventSRQLimitReached; limit != (i == 0) {
			t.Errorf("message %d: event %t of type %v, want SRQ_LIMIT_REACHED for message 0 alone", i, ok, ev.Type)
		}
		if ok {
			async.Ack(ev)
		}
	}
	must.Do(t, s.DestroyQP())
	must.Do(t, l.DestroySRQ())
	if err := srq.SetLimit(1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("SetLimit of a queue that is destroyed returned %v, want %v", err, verbs.ErrClosed)
	}
}
