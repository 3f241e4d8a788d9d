package soft

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// raiseQP raises an event of a peer's queue pair, as its engine would.
func (e *peer) raiseQP(t verbs.AsyncEventType) {
	e.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: e.qp})
}

// TestAsyncUnacknowledgedKeepsTheObject: an event that was taken keeps its
// object until it is acknowledged; one that nobody took goes with it, and does
// not disturb those of others.
func TestAsyncUnacknowledgedKeepsTheObject(t *testing.T) {
	w := newWorld(t, options{})
	e := w.a
	other := e.newQP(verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1})
	e.raiseQP(verbs.EventCommEst)
	e.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: other})
	e.raiseQP(verbs.EventSQDrained)
	ev, ok, err := e.ctx.Async().Get()
	must(t, err)
	if !ok || ev.Type != verbs.EventCommEst || ev.QP != e.qp {
		t.Fatalf("first event %v %v, want COMM_EST of the queue pair", ev, ok)
	}
	if err := e.qp.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing with an unacknowledged event: %v, want ErrBusy", err)
	}
	if s := e.state(); s != verbs.QPSRTS {
		t.Fatalf("a refused Close left the queue pair in %v", s)
	}
	e.ctx.Async().Ack(ev)
	must(t, e.qp.Close())
	ev, ok, err = e.ctx.Async().Get()
	must(t, err)
	if !ok || ev.QP != other {
		t.Fatalf("event %v %v, want that of the other queue pair", ev, ok)
	}
	e.ctx.Async().Ack(ev)
	if ev, ok, _ := e.ctx.Async().Get(); ok {
		t.Fatalf("event %v of a closed queue pair", ev)
	}
	must(t, other.Close())
}

// TestAsyncQueueIsBounded: however often something happens to an object that
// nobody asks about, its events take bounded memory, and each type that
// happened is still told.
func TestAsyncQueueIsBounded(t *testing.T) {
	w := newWorld(t, options{})
	for range 10 * maxUnread {
		w.a.raiseQP(verbs.EventSQDrained)
	}
	w.a.raiseQP(verbs.EventQPFatal)
	w.a.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: w.a.scq})
	evs := w.a.events()
	if n := len(evs); n != maxUnread+2 {
		t.Fatalf("%d events wait, want %d: the bound, and one of each later type and object", n, maxUnread+2)
	}
	if evs[maxUnread] != verbs.EventQPFatal || evs[maxUnread+1] != verbs.EventCQErr {
		t.Fatalf("the last events are %v, want QP_FATAL and CQ_ERR", evs[maxUnread:])
	}
	w.a.raiseQP(verbs.EventSQDrained)
	if evs := w.a.events(); len(evs) != 1 {
		t.Fatalf("events %v after reading all, want the new one", evs)
	}
}

// TestAsyncRingMayTake: who is told of an event may take it at once.
func TestAsyncRingMayTake(t *testing.T) {
	w := newWorld(t, options{})
	taken := 0
	w.a.ctx.Async().Notify(func() { taken += len(w.a.events()) })
	w.a.raiseQP(verbs.EventCommEst)
	w.a.ctx.Async().Notify(nil)
	if taken != 1 {
		t.Fatalf("%d events taken by who was told, want 1", taken)
	}
}
