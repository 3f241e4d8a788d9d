package reactor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// asked is how many keep-alives were sent.
func (w *watched) asked() uint64 { return w.r.Stats().KeepAlives }

// Rule: an idle peer is asked once in every KeepAlive, and every answer is a
// sign of it.
func TestAnIdlePeerIsAskedOnceInKeepAlive(t *testing.T) {
	const every, times = 700 * time.Millisecond, 50
	w := newWatched(t, reactor.Limit{Bound: time.Second, KeepAlive: every})
	w.pass(times * every)
	if n := w.asked(); n < times-1 || n > times+1 {
		t.Errorf("asked %d times in %d intervals", n, times)
	}
	if len(w.late) != 0 {
		t.Errorf("late at %v", w.at)
	}
}

// Rule: the peer is asked within KeepAlive after the last sign of it, and not
// within half of that; a message is a sign as a completion is. When it does not
// answer the queue is late within the bound after that.
func TestAPeerIsAskedWithinKeepAliveOfTheLastSign(t *testing.T) {
	r := testRand(t)
	for range 40 {
		every := time.Duration(2 + r.Int64N(int64(10*time.Second)))
		bound := time.Duration(1 + r.Int64N(int64(10*time.Second)))
		w := newWatched(t, reactor.Limit{Bound: bound, KeepAlive: every})
		got := make(inbox, 16)
		receive := func() {
			_, sge := w.bytes(0, 8)
			check(t, w.q.PostRecv(&reactor.Recv{Sink: got}, []verbs.SGE{sge}, reactor.Wait))
			w.settle()
		}
		receive()
		w.pass(every)
		for range 10 {
			if r.IntN(2) == 0 {
				w.post(t)
			} else { // the peer sends
				w.peer.stray(t, reactor.Send{Sink: called(func(_ reactor.Completion, err error) { try(t, err) })})
				w.settle()
				comes(t, "the message", got)
				receive()
			}
			before := w.asked()
			w.pass((every + 1) / 2)
			if n := w.asked(); n != before {
				t.Fatalf("every %v: asked %d times within half of it after a sign", every, n-before)
			}
			w.pass(every - (every+1)/2)
			if n := w.asked(); n != before+1 {
				t.Fatalf("every %v: asked %d times within it after a sign, want once", every, n-before)
			}
			w.pass(time.Duration(r.Int64N(int64(every/2 + 1))))
		}
		w.deaf = true
		from := w.passed()
		w.pass(every + 2*bound)
		if len(w.late) != 1 || w.at[0]-from > every+bound+bound/8 {
			t.Fatalf("every %v, bound %v: late %v after %v, want once within their sum and an eighth", every, bound, w.at, from)
		}
	}
}

// Rule: who was only just connected is asked neither sooner nor later than another. The
// moments at which all are looked at are the reactor's: the first after a connection was
// made came at once, and asked a peer that had been silent for a millisecond (found by
// a test on the null device, whose fault struck that WRITE).
func TestANewPeerIsAskedAsLate(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.Limit{KeepAlive: every})
	for _, at := range []time.Duration{0, 1, every / 4, every/2 - time.Millisecond} {
		w.pass(every - w.passed()%every + at)
		w.do(t, func() { check(t, w.q.SetLimit(reactor.Limit{KeepAlive: every})) })
		w.settle()
		before := w.asked()
		w.pass(every/2 - 1)
		if n := w.asked() - before; n != 0 {
			t.Errorf("connected %v after a moment of the reactor: asked %d times within half of KeepAlive", at, n)
		}
		w.pass(every/2 + 1)
		if n := w.asked() - before; n != 1 {
			t.Errorf("connected %v after a moment of the reactor: asked %d times within KeepAlive", at, n)
		}
	}
}

// Rule: the question has a place of its own: it takes none of the caller's, and
// waits for none.
func TestAskingTakesNoPlaceOfTheCallers(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.Limit{Bound: time.Minute, KeepAlive: every})
	w.pass(every)
	w.deaf = true // the next question stays out
	w.pass(every)
	n := 0
	for w.post(t) {
		n++
	}
	if n != w.q.SendDepth() || w.r.Stats().Outstanding != n+1 {
		t.Errorf("%d sends beside a question, %d requests out; want %d and one more", n, w.r.Stats().Outstanding, w.q.SendDepth())
	}
	w.deaf = false
	w.settle()
	w.deaf = true
	w.post(t)
	before := w.asked()
	w.pass(5 * every) // something is out: nobody needs to ask
	if w.asked() != before {
		t.Error("asked with a request out")
	}
}

// Rule: a reactor that sleeps, or is driven by those who wait, ends the wait for
// a peer that does not answer: the bound is kept by its loop.
func TestALoopKeepsTheBound(t *testing.T) {
	for name, cfg := range map[string]reactor.Config{"asleep": {NoCallerDriving: true, Spin: -1}, "driven": {Recheck: -1}} {
		t.Run(name, func(t *testing.T) {
			const bound = 50 * time.Millisecond
			a, b := pair(t, cfg, reactor.QueueConfig{ControlDepth: 1})
			defer b.close(t)
			defer a.closeRest(t)
			var why = errors.New("it did not answer")
			from := time.Now()
			a.do(t, func() {
				check(t, a.q.SetLimit(reactor.Limit{Bound: bound, Late: func(l reactor.Late) {
					a.q.Fail(why)
					try(t, a.q.QP().Close()) // as for a device that flushes nothing
					try(t, a.q.Release(why))
				}}))
			})
			f := a.stray(t, reactor.Send{})
			_, err := f.Await(bounded(t))
			if took := time.Since(from); !errors.Is(err, why) || took < bound {
				t.Errorf("ended after %v with %v; want %q after %v", took, err, why, bound)
			}
			if s := a.r.Stats(); s.Late != 1 || s.Unflushed != 1 {
				t.Errorf("%d late, %d not flushed; want 1 of each", s.Late, s.Unflushed)
			}
		})
	}
}
