package reactor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// watched is a pair of ends on stepped reactors with a virtual clock. The embedded end is under
// test. Its queue has a PeerLimit whose OnTimeout records the call in the fields late and at.
type watched struct {
	*end
	clock
	peer   *end
	deaf   bool                  // if set, polls of the embedded end return at most ration completions
	refuse bool                  // if set, the device refuses the sends of the embedded end
	ration int                   // set by the test; decremented for each completion that a poll returns
	late   []reactor.PeerTimeout // the arguments of the calls of OnTimeout
	at     []time.Duration       // the times of these calls, since watchedFrom
}

var watchedFrom = time.Unix(1_700_000_000, 0)

func newWatched(t *testing.T, l reactor.PeerLimit) *watched {
	t.Helper()
	return newWatchedQueue(t, l, reactor.QueueConfig{SendDepth: 4, RecvDepth: 16, ControlDepth: 1, Windows: true})
}

func newWatchedQueue(t *testing.T, l reactor.PeerLimit, qc reactor.QueueConfig) *watched {
	t.Helper()
	onlySoft(t, "the reactor's clock is virtual, but a device works in real time")
	w := &watched{clock: clock{watchedFrom}}
	var h *hooked
	w.end, w.peer, h = hookedPair(t, reactor.Config{Stepped: true, Now: w.Now}, qc)
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		if w.deaf {
			if w.ration == 0 {
				turn.Polls = turn.Polls[:0]
			}
			for i := range turn.Polls {
				turn.Polls[i].WC = turn.Polls[i].WC[:w.ration]
			}
		}
		sends := turn.Sends
		if w.refuse {
			turn.Sends = nil
			for i := range sends {
				sends[i].Accepted, sends[i].Errno = 0, syscall.EIO
			}
		}
		err := inner.Execute(turn)
		turn.Sends = sends
		for i := range turn.Polls {
			w.ration = max(w.ration-turn.Polls[i].N, 0)
		}
		return err
	})
	l.OnTimeout = func(l reactor.PeerTimeout) { w.late = append(w.late, l); w.at = append(w.at, w.passed()) }
	w.do(t, func() { must.Do(t, w.q.SetPeerLimit(l)) })
	w.settle()
	t.Cleanup(func() {
		w.deaf = false
		for _, e := range []*end{w.end, w.peer} {
			e.release(t, reactor.ErrClosed)
			e.r.Step() // reclaims
			e.closeRest(t)
		}
	})
	return w
}

func (w *watched) passed() time.Duration { return w.now.Sub(watchedFrom) }

// settle calls Step on both reactors until neither has anything to do at the present virtual time.
// Unless deaf or refuse is set, it also waits until all sends have completed, because the device may
// complete them on another goroutine.
func (w *watched) settle() {
	for w.r.Step() || w.peer.r.Step() || w.r.Pending() || !w.deaf && !w.refuse && w.r.Stats().Outstanding > 0 {
	}
}

// pass advances the clock by d. It stops at the time of each timer on the way, and calls settle there.
func (w *watched) pass(d time.Duration) {
	for until := w.now.Add(d); ; {
		w.settle()
		next := w.r.NextTimer()
		if next.IsZero() || next.After(until) {
			w.now = until
			w.settle()
			return
		}
		w.now = next
	}
}

// post submits a WRITE and calls settle, so that the WRITE completes unless deaf or refuse is set. It
// returns false if the queue is full.
func (w *watched) post(t *testing.T) bool {
	t.Helper()
	s, p := w.write(w.peer)
	f, err := w.q.Submit(context.Background(), s, &p, reactor.NonBlock)
	if errors.Is(err, reactor.ErrQueueFull) {
		return false
	}
	must.Do(t, err)
	f.Discard()
	w.settle()
	return true
}

// testRand returns a random number generator, and logs its seed. The environment variable VERBENA_SEED
// sets the seed, to repeat a run.
func testRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("VERBENA_SEED"); s != "" {
		seed = must.Get(strconv.ParseUint(s, 10, 64))(t)
	}
	t.Logf("VERBENA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// Rule: a queue times out when sends have been outstanding for the time Bound and none of them has
// completed. OnTimeout is called then, or at most an eighth of Bound later. Each completion
// restarts the time. A queue without outstanding sends never times out.
func TestAQueueIsLateWithinItsBound(t *testing.T) {
	r := testRand(t)
	for range 60 {
		bound := time.Duration(1 + r.Int64N(int64(10*time.Second)))
		w := newWatched(t, reactor.PeerLimit{Bound: bound})
		for range 20 { // the queue must not time out, because each round withholds completions for less than Bound
			w.deaf = true
			for range r.IntN(5) {
				w.post(t)
			}
			w.pass(time.Duration(r.Int64N(int64(bound))))
			w.deaf = false
			w.pass(time.Duration(r.Int64N(int64(2 * bound))))
		}
		if len(w.late) > 0 {
			t.Fatalf("bound %v: the queue timed out at %v, want never: completions were only withheld for less than the bound", bound, w.at)
		}
		w.pass(3 * bound)
		if next := w.r.NextTimer(); !next.IsZero() {
			t.Fatalf("bound %v: no send is outstanding, but a timer is set for %v from now, want no timer", bound, next.Sub(w.now))
		}
		w.deaf = true
		from := w.passed()
		w.post(t)
		if r.IntN(2) == 0 { // a further send does not restart the time
			w.pass(bound / 2)
			w.post(t)
		}
		w.pass(2 * bound)
		if len(w.late) != 1 {
			t.Fatalf("bound %v: OnTimeout was called %d times, want once", bound, len(w.late))
		}
		if took := w.at[0] - from; took < bound || took > bound+bound/8 {
			t.Errorf("the queue timed out after %v, want %v to %v", took, bound, bound+bound/8)
		}
		if l := w.late[0]; l.Bound != bound || l.Outstanding < 1 || l.Oldest != reactor.KindWrite || l.Since.Sub(watchedFrom) < from {
			t.Errorf("OnTimeout got %+v for a WRITE posted at %v, want Bound %v, the kind WRITE, at least 1 outstanding send, and Since not before the posting", l, from, bound)
		}
		if n := w.r.Stats().PeerTimeouts; n != 1 {
			t.Errorf("Stats.PeerTimeouts is %d, want 1", n)
		}
	}
}

// Rule: if a queue always has outstanding sends, and at least one of them completes within each Bound,
// the queue does not time out.
func TestABusyQueueIsAliveWhileItCompletes(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	for range 40 {
		for w.r.Stats().Outstanding < 2 {
			w.post(t)
		}
		w.pass(bound - bound/10)
		w.ration = 1
		w.settle()
	}
	if len(w.late) != 0 {
		t.Errorf("the queue timed out at %v, want never: a send completed in every %v", w.at, bound-bound/10)
	}
	from := w.passed()
	w.pass(2 * bound)
	if len(w.at) != 1 || w.at[0]-from > bound+bound/8 {
		t.Errorf("the queue timed out at %v, want one time, at most 9/8 of the bound of %v after the last completion at %v", w.at, bound, from)
	}
}

// Rule: if the process is stopped for a while, the stop does not make a queue time out. Completions
// that arrived during the stop are polled before the queue can time out. Only a small part of the stop
// counts as silence of the peer (lateFactor in loop_watchdog.go).
func TestAStoppedProcessBlamesNobody(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	w.post(t)
	w.pass(bound / 2)
	w.now = w.now.Add(time.Hour) // stopped; the completion waits in the completion queue
	w.deaf = false
	w.settle()
	w.pass(bound)
	w.deaf = true
	w.post(t)
	w.now = w.now.Add(time.Hour) // stopped again; the second completion is not polled
	w.settle()
	w.pass(bound / 2)
	if len(w.late) != 0 {
		t.Fatalf("the queue timed out at %v, want not yet: the process was stopped for an hour", w.at)
	}
	w.pass(bound)
	if len(w.late) != 1 {
		t.Errorf("the queue timed out %d times after the bound had passed, want once", len(w.late))
	}
}

// Rule: if a completion arrives within Bound but has not been polled when Bound has passed, the queue
// does not time out.
func TestACompletionInTimeIsNotLate(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	// In the Step at the time Bound, the pass runs first and finds no completion, because deaf is set.
	// Then this timer runs, and then the watchdog's timer, which must poll before it calls OnTimeout.
	w.r.After(bound, func() { w.deaf = false })
	w.post(t)
	w.pass(2 * bound)
	if len(w.late) != 0 {
		t.Error("the queue timed out although the completion had arrived within the bound, want no timeout")
	}
}

// Rule: if a list has many bytes, the queue times out after bytes/slowestPeer (8 MiB a second) instead
// of Bound. Only the bytes up to the first signaled request count.
func TestManyBytesHaveTheirTime(t *testing.T) {
	const bound = 10 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	addr, key := w.peer.remote(0)
	const size = endMemory / 4 // a pass posts up to four sends of this size
	_, sge := w.bytes(0, size)
	w.do(t, func() {
		// Both loops together make one list of 4 sends. SignalEvery is 2 (half of SendDepth), so the
		// second and the fourth send are signaled.
		for range 2 {
			f := must.Get(w.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
			f.Discard()
		}
		for range 2 {
			f := must.Get(w.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
			f.Discard()
		}
	})
	w.pass(time.Second)
	const need = 2 * time.Second * size / (8 << 20)
	if len(w.at) != 1 || w.at[0] < need || w.at[0] > need+bound/8 {
		t.Fatalf("the queue timed out at %v, want once after %v, the time for the bytes of the first 2 sends", w.at, need)
	}
	if w.late[0].Bound != need {
		t.Errorf("PeerTimeout.Bound is %v, want %v", w.late[0].Bound, need)
	}
}

// Rule: SetPeerLimit returns ErrConfig for an invalid limit.
func TestLimitsAreChecked(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{})
	tell := func(reactor.PeerTimeout) {}
	for name, l := range map[string]reactor.PeerLimit{
		"a bound below 0": {Bound: -1, OnTimeout: tell}, "a keep-alive below 0": {KeepAlive: -1}, "a bound without OnTimeout": {Bound: 1},
	} {
		if err := w.q.SetPeerLimit(l); !errors.Is(err, reactor.ErrConfig) {
			t.Errorf("%s: SetPeerLimit returned %v, want %v", name, err, reactor.ErrConfig)
		}
	}
	u := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd, Type: verbs.QPTUD}))(t)
	if err := u.SetPeerLimit(reactor.PeerLimit{Bound: 1, OnTimeout: tell}); !errors.Is(err, reactor.ErrConfig) {
		t.Errorf("SetPeerLimit of a UD queue returned %v, want %v", err, reactor.ErrConfig)
	}
	must.Do(t, u.Discard())
	c := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd}))(t)
	if err := c.SetPeerLimit(reactor.PeerLimit{KeepAlive: 1}); !errors.Is(err, reactor.ErrConfig) {
		t.Errorf("SetPeerLimit with KeepAlive, for a queue without control slots, returned %v, want %v", err, reactor.ErrConfig)
	}
	must.Do(t, c.Discard())
}

// Rule: a send that is submitted while the watchdog is idle queues a tick of the watchdog. If each send
// completes before the next one is submitted, only the first send queues a tick.
func TestSendsOneByOneWakeThePatrolOnce(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{Bound: time.Second})
	w.pass(time.Minute) // now the watchdog is idle
	for i := range 5 {
		w.deaf = true
		s, p := w.write(w.peer)
		f := must.Get(w.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
		f.Discard()
		w.do(t, w.r.Flush)
		if woken := w.r.Pending(); woken != (i == 0) {
			t.Errorf("after send %d Pending returned %t, want true for send 0 only, which queues a tick", i, woken)
		}
		w.deaf = false
		w.settle() // the send completes before the loop task of the watchdog runs
	}
}

// Rule: if timers run a millisecond late, a queue still times out at most an eighth of Bound after
// Bound. This holds even if the interval of the watchdog's ticks is much shorter than a millisecond. (A
// tick that is a millisecond late does not count as a stop of the process.)
func TestLateTimersDoNotStretchTheBound(t *testing.T) {
	const bound, lateness = 5 * time.Second, time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound, KeepAlive: 100 * time.Microsecond})
	w.deaf = true
	from := w.passed()
	w.post(t)
	for len(w.late) == 0 && w.passed()-from < 3*bound {
		next := w.r.NextTimer()
		if next.IsZero() {
			t.Fatal("a send is outstanding, but no timer is set")
		}
		w.now = next.Add(lateness)
		w.settle()
	}
	if took := w.passed() - from; len(w.late) != 1 || took > bound+bound/8 {
		t.Errorf("the queue timed out %d times within %v, want one time within 9/8 of the bound of %v", len(w.late), took, bound)
	}
}

// Rule: if the process was stopped just before Bound passed, the queue does not time out at the first
// tick after the stop. The watchdog waits for the next tick, and the reactor polls for completions
// meanwhile.
func TestAStopJustBeforeTheBoundBlamesNobody(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	w.post(t)
	w.pass(bound * 15 / 16)
	w.now = w.now.Add(time.Hour)
	w.settle()
	if len(w.late) != 0 {
		t.Fatalf("the process was stopped for an hour, and at the first tick afterwards the queue timed out at %v, want no timeout", w.at)
	}
	w.pass(bound / 4)
	if len(w.late) != 1 {
		t.Errorf("after the process was stopped for an hour, the queue timed out %d times within a quarter of the bound, want 1", len(w.late))
	}
}

// Rule: if the device refuses a keep-alive probe, the queue fails. (The queue would not time out,
// because no send is outstanding.)
func TestARefusedKeepAliveFailsTheQueue(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.PeerLimit{KeepAlive: every})
	w.refuse = true
	var failed error
	w.do(t, func() { w.q.OnFail(func(err error) { failed = err }) })
	w.pass(2 * every)
	if !errors.Is(failed, syscall.EIO) {
		t.Errorf("within two times KeepAlive the function given to OnFail got the error %v, want %v", failed, syscall.EIO)
	}
}

// Rule: Stats.Unanswered counts the atomics that the device completed with success, but without storing
// the result. An atomic that completes with an error is not counted.
func TestAFailedAtomicIsNotUnanswered(t *testing.T) {
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}, nil)
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	f := must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr, RKey: key + 1, Add: 5}, &reactor.Payload{}, reactor.Block))(t)
	if _, err := f.Await(context.Background()); err == nil {
		t.Fatal("an atomic with a wrong key succeeded, want an error")
	}
	if n := a.r.Stats().Unanswered; n != 0 {
		t.Errorf("Stats.Unanswered is %d, want 0", n)
	}
}

// Rule: if no queue has exceeded its bound, a tick of the watchdog runs no pass. So a Step with such a
// tick runs only the pass that every Step runs.
func TestATickWithNobodyLateRunsNoPass(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{Bound: time.Second})
	w.deaf = true
	w.post(t)
	w.now = w.r.NextTimer()
	before := w.r.Snapshot().Passes
	w.r.Step()
	if n := w.r.Snapshot().Passes - before; n != 1 {
		t.Errorf("a Step with a tick ran %d passes, want 1", n)
	}
}

// Rule: a limit causes a tick of the watchdog only if the next tick comes too late for it, because a tick visits all
// queues. (A tick for each connection once took most of the time of making ten thousand.)
func TestLimitsOfManyQueuesShareTheirTicks(t *testing.T) {
	const bound, keep = 8 * time.Second, 16 * time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound, KeepAlive: keep})
	w.post(t) // while sends complete, ticks come
	limit := func(l reactor.PeerLimit) (ticks bool) {
		t.Helper()
		e := w.another(t, reactor.QueueConfig{SendDepth: 4, ControlDepth: 1})
		w.do(t, func() {
			if l.Bound > 0 {
				l.OnTimeout = func(reactor.PeerTimeout) { t.Error("a queue without sends exceeded its limit") }
			}
			try(t, e.q.SetPeerLimit(l))
			ticks = w.r.TickQueued()
		})
		w.settle()
		t.Cleanup(func() { e.release(t, reactor.ErrClosed) })
		return ticks
	}
	for _, c := range []struct {
		l     reactor.PeerLimit
		ticks bool
	}{
		{reactor.PeerLimit{Bound: bound, KeepAlive: keep}, false},
		{reactor.PeerLimit{Bound: 2 * bound}, false},
		{reactor.PeerLimit{KeepAlive: keep}, false},
		{reactor.PeerLimit{Bound: bound / 4}, true},
		{reactor.PeerLimit{KeepAlive: keep / 1000}, true},
	} {
		if ticks := limit(c.l); ticks != c.ticks {
			t.Errorf("the limit %v and %v caused a tick: %t, want %t", c.l.Bound, c.l.KeepAlive, ticks, c.ticks)
		}
	}
}
