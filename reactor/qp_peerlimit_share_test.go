package reactor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// crowd returns n ends on w's reactor. The first is w.end. The others are new: each has a queue
// with the limit l, connected to a new queue of w.peer.
func (w *watched) crowd(t *testing.T, n int, l reactor.PeerLimit) []*end {
	t.Helper()
	qc := reactor.QueueConfig{SendDepth: 4, RecvDepth: 1}
	l.OnTimeout = func(l reactor.PeerTimeout) { w.late = append(w.late, l); w.at = append(w.at, w.passed()) }
	all := []*end{w.end}
	for range n - 1 {
		a, b := w.another(t, qc), w.peer.another(t, qc)
		a.ready(t, b)
		b.ready(t, a)
		a.do(t, func() { must.Do(t, a.q.SetPeerLimit(l)) })
		all = append(all, a)
		t.Cleanup(func() { // runs before the cleanup of newWatched
			a.release(t, reactor.ErrClosed)
			b.release(t, reactor.ErrClosed)
		})
	}
	w.settle()
	return all
}

// writeMuch submits a WRITE of n bytes on e's queue.
func (w *watched) writeMuch(t *testing.T, e *end, n int) {
	t.Helper()
	addr, key := w.peer.remote(0)
	_, sge := w.bytes(0, n)
	f := must.Get(e.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
	f.Discard()
	w.settle()
}

// aloneFor is the time that endMemory bytes of one queue take at slowestPeer (8 MiB a second).
const aloneFor = time.Second * endMemory / (8 << 20)

// Rule: if n queues share a wire, each queue gets the time that the bytes of all n queues need. So
// even the queue whose send completes last is not late. A queue that is left alone on the wire gets
// only the time that its own bytes need.
func TestQueuesThatShareAWireShareItsTime(t *testing.T) {
	const n, bound = 20, 10 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	all := w.crowd(t, n, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for _, e := range all[1:] {
		w.writeMuch(t, e, endMemory)
	}
	w.writeMuch(t, all[0], endMemory) // the last to complete
	w.pass(n * aloneFor * 9 / 10)
	for range n - 1 {
		w.ration = 1
		w.pass(aloneFor / 40)
	}
	if len(w.late) != 0 {
		t.Fatalf("late at %v: a wire that takes %v for one was given less than %v for %d", w.at, aloneFor, n*aloneFor, n)
	}
	if out := w.r.Stats().Outstanding; out != 1 {
		t.Fatalf("%d sends are out, want 1: the run does not show what it should", out)
	}
	w.pass(aloneFor)
	if len(w.late) != 1 {
		t.Errorf("told %d times %v after the others were through, want once", len(w.late), aloneFor)
	}
}

// Rule: if the peer of n queues is dead, all n queues are late after n*aloneFor, plus at most an
// eighth of Bound. PeerTimeout.Bound is between n*aloneFor and the time of the report.
func TestDeadQueuesOnAWireAreLate(t *testing.T) {
	const n, bound = 5, 50 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	all := w.crowd(t, n, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for _, e := range all {
		w.writeMuch(t, e, endMemory)
	}
	w.pass(2 * n * aloneFor)
	if len(w.late) != n {
		t.Fatalf("%d of %d are late, want all", len(w.late), n)
	}
	for i, at := range w.at {
		if at < n*aloneFor-n || at > n*aloneFor+bound/8+n || w.late[i].Bound < n*aloneFor-n || w.late[i].Bound > at {
			t.Errorf("late at %v with a bound of %v, want %v", at, w.late[i].Bound, n*aloneFor)
		}
	}
}

// Rule: other queues do not lengthen the bound of a queue with few outstanding bytes.
func TestACrowdWithLittleToSendHasItsBound(t *testing.T) {
	const n, bound = 20, 50 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	all := w.crowd(t, n, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for _, e := range all {
		w.writeMuch(t, e, 8)
	}
	w.pass(bound + bound/8)
	if len(w.late) != n {
		t.Errorf("%d of %d are late within %v and an eighth, want all", len(w.late), n, bound)
	}
	for _, l := range w.late {
		if l.Bound != bound {
			t.Errorf("told the bound was %v, want %v", l.Bound, bound)
		}
	}
}

// Rule: if OnTimeout sets a new limit for another queue that is late at the same tick, the time of
// that queue begins anew.
func TestOnTimeoutSparesAnother(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{})
	other := w.crowd(t, 2, reactor.PeerLimit{Bound: bound})[1]
	spare := func(reactor.PeerTimeout) {
		try(t, other.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: func(reactor.PeerTimeout) { w.at = append(w.at, w.passed()) }}))
	}
	w.do(t, func() { must.Do(t, w.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: spare})) })
	w.deaf = true
	for _, e := range []*end{w.end, other} { // no Step between the two, so both are late at the same tick
		s, _ := e.write(w.peer)
		f := must.Get(e.q.Submit(context.Background(), s, &reactor.Payload{}, reactor.NonBlock))(t)
		f.Discard()
	}
	w.pass(3 * bound)
	if len(w.late) != 0 || len(w.at) != 1 || w.at[0] < 2*bound {
		t.Errorf("got the other late at %v, want once and not before %v", w.at, 2*bound)
	}
}

// Rule: SetPeerLimit refuses a queue that is not admitted. Otherwise a queue that is never admitted
// would keep its limit, and the watchdog (the timer that checks limits) would run for ever.
func TestALimitBeforeAdmitIsRefused(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{})
	q := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd, ControlDepth: 1}))(t)
	w.do(t, func() {
		if err := q.SetPeerLimit(reactor.PeerLimit{KeepAlive: time.Second}); !errors.Is(err, reactor.ErrConfig) {
			t.Errorf("a limit before Admit: %v, want %v", err, reactor.ErrConfig)
		}
	})
	must.Do(t, q.Discard())
}

// Rule: requests that the device completes locally (BIND_MW, LOCAL_INV) are no sign of the peer, so
// they do not delay a probe.
func TestLocalWorkIsNoSignOfThePeer(t *testing.T) {
	const every, times = time.Second, 8
	w := newWatched(t, reactor.PeerLimit{Bound: time.Minute, KeepAlive: every})
	mw := must.Get(w.pd.AllocMW(verbs.MWType2))(t)
	key := mw.RKey()
	mr := must.Get(w.pd.RegMR(w.arena.Addr(), endMemory, w.arena.Addr(), endAccess|verbs.AccessMWBind))(t)
	done := func(s reactor.Send) {
		t.Helper()
		var err error
		s.Sink = called(func(_ reactor.Completion, e error) { err = e })
		must.Get(w.q.Submit(context.Background(), &s, &reactor.Payload{}, reactor.NonBlock))(t)
		w.settle()
		must.Do(t, err)
	}
	w.pass(every)
	before := w.asked()
	for range 4 * times { // if these requests were signs of the peer, there would be no probe
		key = verbs.IncRKey(key)
		done(reactor.Send{Opcode: verbs.WRBindMW, Bind: &reactor.Bind{Window: mw, Region: mr, RKey: key, Addr: w.arena.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}})
		done(reactor.Send{Opcode: verbs.WRLocalInv, Invalidate: key})
		w.pass(every / 4)
	}
	if n := w.asked() - before; n < times-1 || n > times+1 {
		t.Errorf("asked %d times in %d intervals with local work alone", n, times)
	}
	must.Do(t, mw.Close())
	must.Do(t, mr.Close())
}

// Rule: a call of NotePeerReceive counts as a sign of the peer. (It reports a message that arrived
// through a shared receive queue.)
func TestWhatIsHeardIsASign(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.PeerLimit{KeepAlive: every})
	w.pass(every)
	before := w.asked()
	for range 20 {
		w.do(t, w.q.NotePeerReceive)
		w.pass(every / 4)
	}
	if n := w.asked() - before; n != 0 {
		t.Errorf("asked %d times, though the peer was heard four times in each interval", n)
	}
}

// Rule: a queue whose sends complete between two ticks (checks by the watchdog) counts as sharing
// the wire until the second tick. So a queue with an outstanding send is not late at that tick.
func TestWhoHasJustEndedHadAShare(t *testing.T) {
	const n, bound = 20, aloneFor
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	all := w.crowd(t, n, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for _, e := range all[1:] {
		w.writeMuch(t, e, endMemory)
	}
	w.writeMuch(t, all[0], endMemory)
	w.pass(n * aloneFor * 95 / 100)
	w.ration = n - 1
	w.settle()
	w.pass(bound / 8) // one tick
	w.ration = 1
	w.settle()
	if len(w.late) != 0 {
		t.Errorf("late at %v, in the look after %d others had ended", w.at, n-1)
	}
	if out := w.r.Stats().Outstanding; out != 0 {
		t.Errorf("%d sends are out, want none", out)
	}
}

// watched.asked returns how many probes were sent.
func (w *watched) asked() uint64 { return w.r.Stats().KeepAlives }

// Rule: an idle peer is probed one time in every KeepAlive. If it answers, the queue is not late.
func TestAnIdlePeerIsAskedOnceInKeepAlive(t *testing.T) {
	const every, times = 700 * time.Millisecond, 50
	w := newWatched(t, reactor.PeerLimit{Bound: time.Second, KeepAlive: every})
	w.pass(times * every)
	if n := w.asked(); n < times-1 || n > times+1 {
		t.Errorf("asked %d times in %d intervals", n, times)
	}
	if len(w.late) != 0 {
		t.Errorf("late at %v", w.at)
	}
}

// Rule: the peer is probed at least KeepAlive/2 and at most KeepAlive after its last sign. A
// message from the peer is a sign, and so is a completed send. If the peer does not answer the
// probe, the queue is late after Bound, plus at most an eighth of Bound.
func TestAPeerIsAskedWithinKeepAliveOfTheLastSign(t *testing.T) {
	r := testRand(t)
	for range 40 {
		every := time.Duration(2 + r.Int64N(int64(10*time.Second)))
		bound := time.Duration(1 + r.Int64N(int64(10*time.Second)))
		w := newWatched(t, reactor.PeerLimit{Bound: bound, KeepAlive: every})
		got := make(inbox, 16)
		receive := func() {
			_, sge := w.bytes(0, 8)
			must.Do(t, w.q.PostRecv(&reactor.Recv{Sink: got}, []verbs.SGE{sge}, reactor.Block))
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

// Rule: the first probe comes at least KeepAlive/2 and at most KeepAlive after SetPeerLimit. All
// queues of a reactor have common ticks, so a tick may come right after SetPeerLimit. This tick
// must not send a probe. (In an older version it did: a test on the null device failed, because its
// injected fault hit the probe.)
func TestANewPeerIsAskedAsLate(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.PeerLimit{KeepAlive: every})
	for _, at := range []time.Duration{0, 1, every / 4, every/2 - time.Millisecond} {
		w.pass(every - w.passed()%every + at)
		w.do(t, func() { must.Do(t, w.q.SetPeerLimit(reactor.PeerLimit{KeepAlive: every})) })
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

// Rule: a probe uses a control slot. So while a probe is outstanding, the user can submit SendDepth
// sends. While a request is outstanding, no probe is sent.
func TestAskingTakesNoPlaceOfTheCallers(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: time.Minute, KeepAlive: every})
	w.pass(every)
	w.deaf = true // the next probe stays outstanding
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
	w.pass(5 * every)
	if w.asked() != before {
		t.Error("asked with a request out")
	}
}

// Rule: OnTimeout is called even if the loop sleeps, and even if a waiting goroutine drives. Then
// the wait for the silent peer ends.
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
				must.Do(t, a.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: func(l reactor.PeerTimeout) {
					a.q.Fail(why)
					try(t, a.q.QP().Close()) // no flush: Release must end the request
					try(t, a.q.Release(why))
				}}))
			})
			f := a.stray(t, reactor.Send{})
			_, err := f.Await(bounded(t))
			if took := time.Since(from); !errors.Is(err, why) || took < bound {
				t.Errorf("ended after %v with %v; want %q after %v", took, err, why, bound)
			}
			if s := a.r.Stats(); s.PeerTimeouts != 1 || s.Unflushed != 1 {
				t.Errorf("%d late, %d not flushed; want 1 of each", s.PeerTimeouts, s.Unflushed)
			}
		})
	}
}
