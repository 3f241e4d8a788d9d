package reactor_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// message posts a receive, and returns a future for the completion of this receive.
func (e *end) message(sge verbs.SGE) (reactor.Future, error) {
	p, f := e.r.Futures().New(e.r.Driver())
	err := e.q.PostRecv(&reactor.Recv{Sink: called(func(c reactor.Completion, err error) { p.Settle(c, err) })}, []verbs.SGE{sge}, reactor.Block)
	return f, err
}

// tell sends the bytes of sge, and waits for the completion of this send.
func (e *end) tell(ctx context.Context, sge verbs.SGE) error {
	f, err := e.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NoWakeup)
	if err == nil {
		_, err = f.Await(ctx)
	}
	return err
}

// asks makes n round trips: the end "from" sends a message, and the end "to" answers it.
func asks(t testing.TB, from, to *end, n int) {
	t.Helper()
	ctx := bounded(t)
	_, here := from.bytes(0, 8)
	_, there := to.bytes(0, 8)
	next := must.Get(to.message(there))(t)
	answered := make(chan error, 1)
	go func() {
		for k := range n {
			_, err := next.Await(ctx)
			if err == nil && k < n-1 { // a receive that is left would take the first message of the next call
				next, err = to.message(there)
			}
			if err == nil {
				err = to.tell(ctx, there)
			}
			if err != nil {
				answered <- err
				return
			}
		}
		answered <- nil
	}()
	for range n {
		f := must.Get(from.message(here))(t)
		must.Do(t, from.tell(ctx, here))
		must.Get(f.Await(ctx))(t)
	}
	must.Do(t, <-answered)
}

// Rule: while the loop spins, it arms nothing, and messages raise no events. The loop arms only
// before it sleeps. Stats reports the number of spins and the spin budget.
func TestASpinningLoopSparesEvents(t *testing.T) {
	n := fewer(2000)
	a, b := pair(t, reactor.Config{Policy: reactor.PolicyThroughput, Recheck: -1}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	asks(t, a, b, n)
	for _, e := range []*end{a, b} {
		s := e.r.Stats()
		t.Logf("%d round trips: %d events, %d arms, %d sleeps, %d spins, %d spins that found nothing, %d turns given back to the loop, spin budget %v", n, s.Events, s.Arms, s.Sleeps, s.Spins, s.SpinsInVain, s.Returned, s.MaxSpin)
		if s.Spins == 0 || s.MaxSpin == 0 {
			t.Errorf("Stats has %d spins and a spin budget of %v, want both above 0", s.Spins, s.MaxSpin)
		}
		// The loop arms its two completion queues before each sleep, and may have armed them already
		// for its next sleep. The number of sleeps is not limited: if each message takes longer than the spin
		// budget, the loop sleeps for each message.
		if most := 2*s.Sleeps + 2; s.Arms > most || s.Events > most {
			t.Errorf("%d arms and %d events for %d sleeps of the loop, want at most %d of each", s.Arms, s.Events, s.Sleeps, most)
		}
	}
}

// Rule: if the loop spins, a driver that leaves gives the turn back to the loop, and arms nothing.
// (The test uses PolicyLatency, whose loop always spins. With PolicyThroughput the loop might be asleep
// each time a driver leaves.)
func TestADriverLendsToASpinningLoop(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	a, b := pair(t, reactor.Config{Policy: reactor.PolicyLatency}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx, drives := bounded(t), a.r.Stats().Drives
	untilReturned := func(n uint64) (s reactor.Stats) {
		for s = a.r.Stats(); s.Returned < n; s = a.r.Stats() {
			if ctx.Err() != nil && s.Drives == drives {
				// On a busy machine all threads of the process may share one processor. Then it can happen
				// that the loop holds the turn each time it is preempted, and no other goroutine can drive.
				t.Skip("no goroutine drove the reactor, so none could give the turn back to the loop")
			}
			if ctx.Err() != nil {
				t.Fatalf("drivers gave the turn back to the loop %d times, want %d: %+v", s.Returned, n, s)
			}
			asks(t, a, b, 1) // only one round trip, because with two spinning loops it takes long on a busy emulated machine
		}
		drives = s.Drives
		return s
	}
	before := untilReturned(1) // the loop spins as soon as a driver has given the turn back to it
	if s := untilReturned(before.Returned + 1); s.Arms != before.Arms {
		t.Errorf("%d arms while the loop spins, want none", s.Arms-before.Arms)
	}
}

// Rule: the default policy is PolicyEconomy, which has no spin budget. (How its loop spins for
// Config.Spin empty passes is tested by TestSpinningPassesLendTheTurn in package turn.)
func TestEconomyHasNoSpinBudget(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	asks(t, a, b, 100)
	if s := a.r.Stats(); s.MaxSpin != 0 || a.r.Policy() != reactor.PolicyEconomy {
		t.Errorf("the policy is %v with a spin budget of %v, want economy with 0", a.r.Policy(), s.MaxSpin)
	}
}

// resting is a device that implements verbs.PollReceiver, and counts the calls of Rest.
type resting struct {
	verbs.Context
	rests *atomic.Int64
}

func (r resting) Rest()          { r.rests.Add(1) }
func (r resting) Receives() bool { return true }

// Rule: if the device receives packets while it is polled (verbs.PollReceiver), the loop calls the
// device's method Rest before it sleeps.
func TestALoopRestsBeforeItSleeps(t *testing.T) {
	var rests atomic.Int64
	dev := home().open(t, 0)
	r := must.Get(reactor.New(reactor.Config{Context: resting{dev, &rests}}))(t)
	for ctx := bounded(t); r.Stats().Sleeps == 0; runtime.Gosched() {
		must.Do(t, ctx.Err())
	}
	if rests.Load() == 0 {
		t.Error("the loop slept, but the device's method Rest was not called, want a call before the loop sleeps")
	}
	must.Do(t, r.Close(bounded(t)))
	must.Do(t, dev.Close())
}

// Rule: loops of PolicyLatency leave at least one processor free. A new reactor whose loop would take
// the last free processor gets PolicyThroughput. When a reactor is closed, a new loop may take its
// processor.
func TestLatencyLeavesAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	dev := home().open(t, 0)
	open := func() *reactor.Reactor {
		return must.Get(reactor.New(reactor.Config{Context: dev, Policy: reactor.PolicyLatency}))(t)
	}
	first, second := open(), open()
	if first.Policy() != reactor.PolicyLatency || second.Policy() != reactor.PolicyThroughput {
		t.Errorf("two reactors on two processors have the policies %v and %v, want latency and throughput", first.Policy(), second.Policy())
	}
	must.Do(t, first.Close(bounded(t)))
	third := open()
	if third.Policy() != reactor.PolicyLatency {
		t.Errorf("a reactor that was opened after the first reactor was closed has the policy %v, want latency", third.Policy())
	}
	must.Do(t, second.Close(bounded(t)))
	must.Do(t, third.Close(bounded(t)))
	must.Do(t, dev.Close())
}

// Rule: New refuses an unknown policy.
func TestUnknownPolicy(t *testing.T) {
	dev := home().open(t, 0)
	if _, err := reactor.New(reactor.Config{Context: dev, Policy: 99}); !errors.Is(err, reactor.ErrConfig) {
		t.Errorf("New with policy 99 returned %v, want ErrConfig", err)
	}
	must.Do(t, dev.Close())
}

// Rule: with PolicyThroughput, New measures the cost of arming. If the device refuses to arm, New
// returns the device's error and leaves no verbs object behind.
func TestNewFailsIfItCannotArm(t *testing.T) {
	h := &hooked{Context: home().open(t, 0)}
	h.set(func(verbs.Context, *verbs.IOBatch) error { return syscall.EIO })
	if _, err := reactor.New(reactor.Config{Context: h, Policy: reactor.PolicyThroughput}); !errors.Is(err, syscall.EIO) {
		t.Errorf("New returned %v, want %v", err, syscall.EIO)
	}
	try(t, leftObjects(h.Context))
	must.Do(t, h.Context.Close())
}

// Rule: a loop of PolicyLatency never sleeps. It handles completions, timers and the functions given to
// Do even if no goroutine drives.
func TestLatencyServesErrands(t *testing.T) {
	a, b := pair(t, reactor.Config{Policy: reactor.PolicyLatency, NoCallerDriving: true}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	asks(t, a, b, 100)
	rang := make(chan struct{})
	a.r.After(1, func() { close(rang) })
	comes(t, "a timer", rang)
	must.Do(t, a.r.Do(context.Background(), func() {}))
}
