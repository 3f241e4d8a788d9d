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
// test.
type watched struct {
	*end
	clock
	peer   *end
	deaf   bool                  // completions are not polled, except as many as w.ration
	refuse bool                  // the device refuses sends
	ration int                   // how many completions are still polled while deaf is set
	late   []reactor.PeerTimeout // the calls of OnTimeout
	at     []time.Duration       // the time of each call, since watchedFrom
}

var watchedFrom = time.Unix(1_700_000_000, 0)

func newWatched(t *testing.T, l reactor.PeerLimit) *watched {
	t.Helper()
	return newWatchedQueue(t, l, reactor.QueueConfig{SendDepth: 4, RecvDepth: 16, ControlDepth: 1})
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

// settle steps both ends until neither has anything to do at the present virtual time, and the device, which
// may run on another goroutine, has completed all sends.
func (w *watched) settle() {
	for w.r.Step() || w.peer.r.Step() || w.r.Pending() || !w.deaf && !w.refuse && w.r.Stats().Outstanding > 0 {
	}
}

// pass advances the clock by d. It stops at each timer on the way, and settles.
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

// post submits a WRITE that the device completes at once. It returns false if the queue is full.
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

func testRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("VERBENA_SEED"); s != "" {
		seed = must.Get(strconv.ParseUint(s, 10, 64))(t)
	}
	t.Logf("VERBENA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// Rule: a queue is late when sends have been outstanding for the time Bound and none of them has
// completed. OnTimeout is called then, or at most an eighth of Bound later. Each completion
// restarts the time. A queue without outstanding sends is never late.
func TestAQueueIsLateWithinItsBound(t *testing.T) {
	r := testRand(t)
	for range 60 {
		bound := time.Duration(1 + r.Int64N(int64(10*time.Second)))
		w := newWatched(t, reactor.PeerLimit{Bound: bound})
		for range 20 { // the queue must not be late: in each round, completions are not polled for less than Bound
			w.deaf = true
			for range r.IntN(5) {
				w.post(t)
			}
			w.pass(time.Duration(r.Int64N(int64(bound))))
			w.deaf = false
			w.pass(time.Duration(r.Int64N(int64(2 * bound))))
		}
		if len(w.late) > 0 {
			t.Fatalf("bound %v: late after %v, but it was never silent for so long", bound, w.at)
		}
		w.pass(3 * bound)
		if next := w.r.NextTimer(); !next.IsZero() {
			t.Fatalf("bound %v: with nothing out a timer is set, for %v from now", bound, next.Sub(w.now))
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
			t.Errorf("late after %v, want %v to an eighth more", took, bound)
		}
		if l := w.late[0]; l.Bound != bound || l.Outstanding < 1 || l.Oldest != reactor.KindWrite || l.Since.Sub(watchedFrom) < from {
			t.Errorf("told %+v, posted %v after the start with bound %v", l, from, bound)
		}
		if n := w.r.Stats().PeerTimeouts; n != 1 {
			t.Errorf("Stats.PeerTimeouts is %d, want 1", n)
		}
	}
}

// Rule: a queue that always has outstanding sends is not late if at least one of them completes
// within each Bound.
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
		t.Errorf("late at %v, though something completed in every %v", w.at, bound-bound/10)
	}
	from := w.passed()
	w.pass(2 * bound)
	if len(w.at) != 1 || w.at[0]-from > bound+bound/8 {
		t.Errorf("late at %v, want once within %v and an eighth after the last completion at %v", w.at, bound, from)
	}
}

// Rule: if the process is stopped for a while, no queue is late because of the stop. Completions
// that arrived during the stop count. The stop itself does not count as silence of the peer,
// because the watchdog had no ticks.
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
		t.Fatalf("late at %v, after an hour that the process slept through", w.at)
	}
	w.pass(bound)
	if len(w.late) != 1 {
		t.Errorf("told %d times after the bound, want once", len(w.late))
	}
}

// Rule: if a completion arrives within Bound and is polled only later, the queue is not late.
func TestACompletionInTimeIsNotLate(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	// In the step at Bound, the pass runs first and does not poll the completion. Then this timer
	// runs, and then the watchdog's timer.
	w.r.After(bound, func() { w.deaf = false })
	w.post(t)
	w.pass(2 * bound)
	if len(w.late) != 0 {
		t.Error("late, though its completion had come")
	}
}

// Rule: a list with many bytes has more time than Bound: bytes/slowestPeer. Only the bytes up to
// the first signaled request count.
func TestManyBytesHaveTheirTime(t *testing.T) {
	const bound = 10 * time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	addr, key := w.peer.remote(0)
	const size = endMemory / 4 // a pass posts up to four sends of this size
	_, sge := w.bytes(0, size)
	w.do(t, func() {
		for range 2 { // both loops make one list of 4 sends; SignalEvery is 2: the second and the last are signaled
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
		t.Fatalf("late at %v, want once after the %v that 2 of 4 requests take", w.at, need)
	}
	if w.late[0].Bound != need {
		t.Errorf("told the bound was %v, want %v", w.late[0].Bound, need)
	}
}

// Rule: SetPeerLimit returns ErrConfig for an invalid limit.
func TestLimitsAreChecked(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{})
	tell := func(reactor.PeerTimeout) {}
	for name, l := range map[string]reactor.PeerLimit{
		"a bound below 0": {Bound: -1, OnTimeout: tell}, "a keep-alive below 0": {KeepAlive: -1}, "a bound that tells nobody": {Bound: 1},
	} {
		if err := w.q.SetPeerLimit(l); !errors.Is(err, reactor.ErrConfig) {
			t.Errorf("%s: %v, want %v", name, err, reactor.ErrConfig)
		}
	}
	u := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd, Type: verbs.QPTUD}))(t)
	if err := u.SetPeerLimit(reactor.PeerLimit{Bound: 1, OnTimeout: tell}); !errors.Is(err, reactor.ErrConfig) {
		t.Errorf("datagrams: %v, want %v", err, reactor.ErrConfig)
	}
	must.Do(t, u.Discard())
	c := must.Get(w.r.Prepare(reactor.QueueConfig{PD: w.pd}))(t)
	if err := c.SetPeerLimit(reactor.PeerLimit{KeepAlive: 1}); !errors.Is(err, reactor.ErrConfig) {
		t.Errorf("a keep-alive without a place: %v, want %v", err, reactor.ErrConfig)
	}
	must.Do(t, c.Discard())
}

// Rule: if each send completes before the next one is submitted, only the first wakes the watchdog.
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
			t.Errorf("send %d: watchdog woken: %t, want true for send 0 only", i, woken)
		}
		w.deaf = false
		w.settle() // the send completes before the loop task of the watchdog runs
	}
}

// Rule: late timers do not delay the report of a late queue, even if the watchdog ticks often. A
// tick that is one millisecond late does not count as a stop of the process, even if the time
// between two ticks is much shorter.
func TestLateTimersDoNotStretchTheBound(t *testing.T) {
	const bound, lateness = 5 * time.Second, time.Millisecond
	w := newWatched(t, reactor.PeerLimit{Bound: bound, KeepAlive: 100 * time.Microsecond})
	w.deaf = true
	from := w.passed()
	w.post(t)
	for len(w.late) == 0 && w.passed()-from < 3*bound {
		next := w.r.NextTimer()
		if next.IsZero() {
			t.Fatal("sends are out, and no timer is set")
		}
		w.now = next.Add(lateness)
		w.settle()
	}
	if took := w.passed() - from; len(w.late) != 1 || took > bound+bound/8 {
		t.Errorf("told %d times, after %v; want once within %v and an eighth", len(w.late), took, bound)
	}
}

// Rule: if the process was stopped just before Bound passed, the queue is not reported at once. The
// watchdog waits for one more tick, and the reactor polls for completions meanwhile.
func TestAStopJustBeforeTheBoundBlamesNobody(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.PeerLimit{Bound: bound})
	w.deaf = true
	w.post(t)
	w.pass(bound * 15 / 16)
	w.now = w.now.Add(time.Hour)
	w.settle()
	if len(w.late) != 0 {
		t.Fatalf("late at %v, in the first moment after an hour that the process slept through", w.at)
	}
	w.pass(bound / 4)
	if len(w.late) != 1 {
		t.Errorf("told %d times a quarter of the bound later, want once", len(w.late))
	}
}

// Rule: if the device refuses a keep-alive probe, the queue fails. Bound would not detect this,
// because no send is outstanding.
func TestARefusedKeepAliveFailsTheQueue(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.PeerLimit{KeepAlive: every})
	w.refuse = true
	var failed error
	w.do(t, func() { w.q.OnFail(func(err error) { failed = err }) })
	w.pass(2 * every)
	if !errors.Is(failed, syscall.EIO) {
		t.Errorf("after two intervals the queue's owner was told %v, want %v", failed, syscall.EIO)
	}
}

// Rule: Stats.Unanswered counts only atomics that the device completed with success, but without storing the result. One that completes with an error is not counted.
func TestAFailedAtomicIsNotUnanswered(t *testing.T) {
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}, nil)
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	f := must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr, RKey: key + 1, Add: 5}, &reactor.Payload{}, reactor.Block))(t)
	if _, err := f.Await(context.Background()); err == nil {
		t.Fatal("an atomic with a wrong key succeeded")
	}
	if n := a.r.Stats().Unanswered; n != 0 {
		t.Errorf("%d are counted as unanswered", n)
	}
}

// Rule: if no queue is late, a tick of the watchdog runs no pass besides the one of Step.
func TestATickWithNobodyLateRunsNoPass(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{Bound: time.Second})
	w.deaf = true
	w.post(t)
	w.now = w.r.NextTimer()
	before := w.r.Snapshot().Passes
	w.r.Step()
	if n := w.r.Snapshot().Passes - before; n != 1 {
		t.Errorf("got %d passes in a Step with a tick, want 1", n)
	}
}
