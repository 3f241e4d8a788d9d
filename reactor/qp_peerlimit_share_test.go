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

// In this file, a queue times out when the watchdog calls PeerLimit.OnTimeout for it. The fields w.at
// and w.late have the times and the arguments of these calls.

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

// aloneFor is the time that endMemory bytes take at slowestPeer (8 MiB a second).
const aloneFor = time.Second * endMemory / (8 << 20)

// Rule: if n queues have outstanding sends of equal size, each queue gets the time that the bytes of
// all n queues take. So even the queue whose send completes last does not time out. When only one
// queue still has an outstanding send, that queue gets only the time that its own bytes take.
func TestQueuesThatShareAWireShareItsTime(t *testing.T) {
	const n, bound = 20, 10 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	all := w.crowd(t, n, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for _, e := range all[1:] {
		w.writeMuch(t, e, endMemory)
	}
	w.writeMuch(t, all[0], endMemory) // completes last
	w.pass(n * aloneFor * 9 / 10)
	for range n - 1 {
		w.ration = 1
		w.pass(aloneFor / 40)
	}
	if len(w.late) != 0 {
		t.Fatalf("queues timed out at %v, want none before %v: the bytes of each of the %d queues take %v", w.at, n*aloneFor, n, aloneFor)
	}
	if out := w.r.Stats().Outstanding; out != 1 {
		t.Fatalf("%d sends are outstanding, want 1: the rest of the test needs exactly one", out)
	}
	w.pass(aloneFor)
	if len(w.late) != 1 {
		t.Errorf("%d queues timed out within %v after all other sends had completed, want 1", len(w.late), aloneFor)
	}
}

// Rule: if the peer of n queues is dead, and each queue has endMemory bytes outstanding, all n queues
// time out after n*aloneFor, plus at most an eighth of Bound. PeerTimeout.Bound is between n*aloneFor
// and the time of the call of OnTimeout.
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
		t.Fatalf("%d of %d queues timed out within %v, want all", len(w.late), n, 2*n*aloneFor)
	}
	for i, at := range w.at { // n ns of tolerance, because checkPeer rounds when it divides times by n
		if at < n*aloneFor-n || at > n*aloneFor+bound/8+n || w.late[i].Bound < n*aloneFor-n || w.late[i].Bound > at {
			t.Errorf("a queue timed out at %v with PeerTimeout.Bound %v, want about %v for both", at, w.late[i].Bound, n*aloneFor)
		}
	}
}

// Rule: if a queue has few outstanding bytes, it times out after Bound, however many other queues have
// outstanding sends.
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
		t.Errorf("%d of %d queues timed out within %v and an eighth, want all", len(w.late), n, bound)
	}
	for _, l := range w.late {
		if l.Bound != bound {
			t.Errorf("PeerTimeout.Bound is %v, want %v", l.Bound, bound)
		}
	}
}

// Rule: if two queues exceed their bounds at the same tick of the watchdog, and OnTimeout of the first
// sets a new limit for the second, the second does not time out at this tick. Its time begins anew.
func TestOnTimeoutSparesAnother(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{})
	other := w.crowd(t, 2, reactor.PeerLimit{Bound: bound})[1]
	spare := func(reactor.PeerTimeout) {
		try(t, other.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: func(reactor.PeerTimeout) { w.at = append(w.at, w.passed()) }}))
	}
	w.do(t, func() { must.Do(t, w.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: spare})) })
	w.deaf = true
	for _, e := range []*end{w.end, other} { // no Step between the submissions, so both queues exceed their bounds at the same tick
		s, _ := e.write(w.peer)
		f := must.Get(e.q.Submit(context.Background(), s, &reactor.Payload{}, reactor.NonBlock))(t)
		f.Discard()
	}
	w.pass(3 * bound)
	if len(w.late) != 0 || len(w.at) != 1 || w.at[0] < 2*bound {
		t.Errorf("the second queue timed out %d times under its old limit, and at %v under its new limit; want 0 times, and once after %v or more", len(w.late), w.at, 2*bound)
	}
}

// Rule: if a queue is not admitted, SetPeerLimit returns ErrConfig. (Release removes the limit of an
// admitted queue. Nothing would remove the limit of a queue that is never admitted, and the
// watchdog's timer would run forever.)
func TestALimitBeforeAdmitIsRefused(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{})
	q := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd, ControlDepth: 1}))(t)
	w.do(t, func() {
		if err := q.SetPeerLimit(reactor.PeerLimit{KeepAlive: time.Second}); !errors.Is(err, reactor.ErrConfig) {
			t.Errorf("SetPeerLimit before Admit returned %v, want %v", err, reactor.ErrConfig)
		}
	})
	must.Do(t, q.Discard())
}

// Rule: the device completes BIND_MW and LOCAL_INV without the peer. So these completions are no sign
// that the peer is alive, and they do not delay a probe.
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
		t.Errorf("%d probes were sent within %d times KeepAlive with local requests only, want one for each KeepAlive, give or take 1", n, times)
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
		t.Errorf("%d probes were sent, want 0: NotePeerReceive was called four times in each KeepAlive", n)
	}
}

// Rule: if the sends of a queue complete between two ticks of the watchdog, the second tick still
// counts this queue among those that share the wire. So a queue that still has an outstanding send
// does not time out at the second tick.
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
		t.Errorf("a queue timed out at %v, want no timeout at the tick after the sends of %d other queues had completed", w.at, n-1)
	}
	if out := w.r.Stats().Outstanding; out != 0 {
		t.Errorf("%d sends are outstanding, want 0", out)
	}
}

// asked returns how many keep-alive probes the reactor under test has sent.
func (w *watched) asked() uint64 { return w.r.Stats().KeepAlives }

// Rule: if a queue is idle, the peer gets one probe in every KeepAlive. If the peer answers the probes,
// the queue does not time out.
func TestAnIdlePeerIsAskedOnceInKeepAlive(t *testing.T) {
	const every, times = 700 * time.Millisecond, 50
	w := newWatched(t, reactor.PeerLimit{Bound: time.Second, KeepAlive: every})
	w.pass(times * every)
	if n := w.asked(); n < times-1 || n > times+1 {
		t.Errorf("%d probes were sent within %d times KeepAlive, want one for each KeepAlive, give or take 1", n, times)
	}
	if len(w.late) != 0 {
		t.Errorf("the queue timed out at %v although the peer answered, want never", w.at)
	}
}

// Rule: the reactor sends a probe at least KeepAlive/2 and at most KeepAlive after the last sign of
// the peer. Signs are messages from the peer and completed sends. If the peer does not answer the
// probe, the queue times out after Bound, plus at most an eighth of Bound.
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
				t.Fatalf("KeepAlive %v: %d probes were sent within half of KeepAlive after a sign of the peer, want 0", every, n-before)
			}
			w.pass(every - (every+1)/2)
			if n := w.asked(); n != before+1 {
				t.Fatalf("KeepAlive %v: %d probes were sent within KeepAlive after a sign of the peer, want 1", every, n-before)
			}
			w.pass(time.Duration(r.Int64N(int64(every/2 + 1))))
		}
		w.deaf = true
		from := w.passed()
		w.pass(every + 2*bound)
		if len(w.late) != 1 || w.at[0]-from > every+bound+bound/8 {
			t.Fatalf("KeepAlive %v, Bound %v: the peer was dead from %v on, and the queue timed out at %v; want one timeout, within KeepAlive and 9/8 of Bound after the death", every, bound, from, w.at)
		}
	}
}

// Rule: the first probe is sent at least KeepAlive/2 and at most KeepAlive after SetPeerLimit. The
// watchdog checks all queues at multiples of KeepAlive/2 of the reactor's clock. Such a check may
// come right after SetPeerLimit, and must then send no probe.
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
			t.Errorf("SetPeerLimit %v after a multiple of KeepAlive: %d probes were sent within half of KeepAlive, want 0", at, n)
		}
		w.pass(every/2 + 1)
		if n := w.asked() - before; n != 1 {
			t.Errorf("SetPeerLimit %v after a multiple of KeepAlive: %d probes were sent within KeepAlive, want 1", at, n)
		}
	}
}

// Rule: a probe uses a control slot, so while a probe is outstanding, the user can still submit
// SendDepth sends. While a send is outstanding, no probe is sent.
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
		t.Errorf("with a probe outstanding, %d sends were accepted and %d requests are outstanding; want %d and %d", n, w.r.Stats().Outstanding, w.q.SendDepth(), w.q.SendDepth()+1)
	}
	w.deaf = false
	w.settle()
	w.deaf = true
	w.post(t)
	before := w.asked()
	w.pass(5 * every)
	if w.asked() != before {
		t.Error("a probe was sent while a send was outstanding, want none")
	}
}

// Rule: the watchdog calls OnTimeout even if the loop sleeps, and even if a waiting goroutine drives.
// When OnTimeout has released the queue, Await of the outstanding send returns.
func TestALoopKeepsTheBound(t *testing.T) {
	for name, cfg := range map[string]reactor.Config{"asleep": {NoCallerDriving: true, Spin: -1}, "driven": {Recheck: -1}} {
		t.Run(name, func(t *testing.T) {
			const bound = 50 * time.Millisecond
			a, b := pair(t, cfg, reactor.QueueConfig{ControlDepth: 1})
			defer b.close(t)
			defer a.closeRest(t)
			var why = errors.New("the peer did not answer")
			from := time.Now()
			a.do(t, func() {
				must.Do(t, a.q.SetPeerLimit(reactor.PeerLimit{Bound: bound, OnTimeout: func(l reactor.PeerTimeout) {
					a.q.Fail(why)
					try(t, a.q.QP().Close()) // without a flush, so that Release ends the SEND
					try(t, a.q.Release(why))
				}}))
			})
			f := a.stray(t, reactor.Send{})
			_, err := f.Await(bounded(t))
			if took := time.Since(from); !errors.Is(err, why) || took < bound {
				t.Errorf("the SEND ended after %v with %v; want %q after at least %v", took, err, why, bound)
			}
			if s := a.r.Stats(); s.PeerTimeouts != 1 || s.Unflushed != 1 {
				t.Errorf("Stats.PeerTimeouts is %d and Stats.Unflushed is %d, want 1 and 1", s.PeerTimeouts, s.Unflushed)
			}
		})
	}
}

// Rule: the probes of many queues that got their limits at one moment are spread over KeepAlive: at no moment
// are there more than 1,024, as long as 256 moments in half a KeepAlive are enough. Each queue sends one in each KeepAlive.
func TestProbesOfManyQueuesAreSpread(t *testing.T) {
	const every, queues, atOnce = 5 * time.Second, 4000, 1024
	limit := reactor.PeerLimit{KeepAlive: every}
	w := newWatched(t, limit)
	for range queues {
		e := w.another(t, reactor.QueueConfig{SendDepth: 1, ControlDepth: 1})
		e.ready(t, e) // it answers itself
		w.do(t, func() { must.Do(t, e.q.SetPeerLimit(limit)) })
		t.Cleanup(func() { e.release(t, reactor.ErrClosed) })
	}
	w.pass(every)   // in which queues whose moments have changed probe once more
	const times = 8 // in which moments at the edges weigh less
	before, moments := w.asked(), 0
	for until := w.now.Add(times * every); w.now.Before(until); moments++ {
		n := w.asked()
		w.now = w.r.NextTimer()
		w.settle()
		if sent := w.asked() - n; sent > atOnce {
			t.Errorf("%d probes were sent at one moment, want at most %d", sent, atOnce)
		}
	}
	if n := w.asked() - before; n < times*queues-2*atOnce || n > times*queues+2*atOnce {
		t.Errorf("%d queues sent %d probes in %d KeepAlives, at %d moments; want one each, give or take those of two moments", queues, n, times, moments)
	}
}
