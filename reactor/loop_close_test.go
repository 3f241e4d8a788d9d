package reactor_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: Close may be called any number of times, whether an earlier call returned nil or its context's
// error. A Close that returns nil has destroyed the reactor's completion queues and channel.
func TestCloseCanBeRepeated(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	closes := func() {
		for i := range 5 {
			if err := l.r.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("call %d of Close with an ended context returned %v, want nil or context.Canceled", i, err)
			}
		}
	}
	closes()
	closing(t, l.r)
	closes()
	for i := range 2 {
		if err := l.r.Close(bounded(t)); err != nil {
			t.Errorf("call %d of Close returned %v, want nil", i, err)
		}
	}
	if err := l.r.Do(context.Background(), func() { t.Error("Do ran its function after Close, want it not to run") }); !errors.Is(err, reactor.ErrClosed) {
		t.Errorf("Do after Close returned %v, want ErrClosed", err)
	}
	if left := l.ctx.Objects(); left.CQ+left.CompChannel != 0 {
		t.Errorf("after Close the device has %v, want no completion queue and no completion channel", left)
	}
}

// closing() waits until Close has closed the reactor for new work: from then on Do returns ErrClosed.
func closing(t testing.TB, r *reactor.Reactor) {
	t.Helper()
	ctx := bounded(t)
	for {
		switch err := r.Do(ctx, func() {}); {
		case errors.Is(err, reactor.ErrClosed):
			return
		case err != nil:
			t.Fatalf("Do returned %v, want nil or, once Close has begun, ErrClosed", err)
		}
	}
}

// Rule: Close of a reactor with a queue returns ErrBusy and changes nothing. It succeeds after the
// queue was released.
func TestCloseIsRefusedWhileAQueueLives(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	if err := a.r.Close(bounded(t)); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close of a reactor with a queue returned %v, want ErrBusy", err)
	}
	s, p := a.write(b)
	f, err := a.q.Submit(context.Background(), s, &p, reactor.Block)
	await(t, f, err) // the reactor still works
	a.close(t)
}

// Rule: Close waits for a running callback, but only until the context of Close ends. If Close is
// called again, it waits for the callback again.
func TestCloseWaitsForTheCallback(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	running, leave := make(chan struct{}), make(chan struct{})
	l.r.Callback(func() { close(running); <-leave })
	comes(t, "the callback", running)
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- l.r.Close(ctx) }()
	closing(t, l.r)
	cancel()
	if err := comes(t, "Close", closed); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while a callback runs returned %v, want context.Canceled", err)
	}
	if err := l.r.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the second Close while a callback runs returned %v, want context.Canceled", err)
	}
	close(leave)
	l.close(t)
}

// Rule: a settled future remains usable after Close. Its callbacks run, and a future derived from it
// settles.
func TestThenAfterClose(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	s, p := a.write(b)
	var fs [2]reactor.Future
	for i := range fs {
		f := must.Get(a.q.Submit(context.Background(), s, &p, reactor.Block))(t)
		comes(t, "the write", f.Done())
		fs[i] = f
	}
	a.close(t)
	bytes := futures.Map(fs[0], func(c reactor.Completion, err error) (int, error) { return int(c.Bytes), err })
	if n, err := bytes.Await(bounded(t)); n != 8 || err != nil {
		t.Errorf("the future that Map derived after Close returned %d, %v; want 8, nil", n, err)
	}
	got := make(chan error, 1)
	fs[1].Then(func(_ reactor.Completion, err error) { got <- err })
	if err := comes(t, "the callback of Then", got); err != nil {
		t.Errorf("a callback that Then added after Close got the error %v, want nil", err)
	}
}

// Rule: functions and tasks that are queued after Close, or while Close runs, still run, because a
// goroutine may wait for their effect.
func TestWhatComesAfterCloseRuns(t *testing.T) {
	for what, queue := range map[string]func(r *reactor.Reactor, fn func()){
		"Defer":    (*reactor.Reactor).Defer,
		"Schedule": func(r *reactor.Reactor, fn func()) { r.Schedule(&reactor.Task{Fn: fn}, false) },
		"Callback": (*reactor.Reactor).Callback,
	} {
		for _, when := range []string{"after", "during"} {
			t.Run(what+"/"+when, func(t *testing.T) {
				l := newLone(t, reactor.Config{}, nil)
				const n = 50
				ran := make(chan struct{}, n)
				push := func() {
					for range n {
						queue(l.r, func() { ran <- struct{}{} })
					}
				}
				if when == "after" {
					l.close(t)
					push()
				} else {
					pushed := make(chan struct{})
					go func() { push(); close(pushed) }()
					l.close(t)
					comes(t, "the goroutine that queues the functions", pushed)
				}
				for range n {
					comes(t, "a run of the queued function", ran)
				}
			})
		}
	}
}

// watchedEnd is a device that calls a function of the test when Close destroys the reactor's
// completion channel.
type watchedEnd struct {
	verbs.Context
	destroying func() // called before a completion channel is destroyed
}

type watchedEndChannel struct {
	verbs.CompChannel
	d *watchedEnd
}

func (d *watchedEnd) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := d.Context.CreateCompChannel()
	return &watchedEndChannel{ch, d}, err
}

func (d *watchedEnd) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return d.Context.CreateCQ(cqe, ch.(*watchedEndChannel).CompChannel, vector, userData)
}

func (c *watchedEndChannel) Close() error {
	c.d.destroying()
	return c.CompChannel.Close()
}

// Rule: Defer starts no pass while Close destroys the reactor's objects. Such a pass would poll
// completion queues that are being destroyed.
func TestNoTurnBesideTheDestruction(t *testing.T) {
	d := &watchedEnd{}
	l := newLone(t, reactor.Config{}, func(ctx verbs.Context) verbs.Context { d.Context = ctx; return d })
	var destroying atomic.Bool
	beside := make(chan bool, 1)
	d.destroying = func() {
		destroying.Store(true)
		l.r.Defer(func() { beside <- destroying.Load() })
		for range 10_000 { // gives a pass that breaks the rule the time to begin
			runtime.Gosched()
		}
		destroying.Store(false)
	}
	l.close(t)
	if comes(t, "the function given to Defer", beside) {
		t.Error("the function given to Defer ran while Close destroyed the completion channel, want it to run afterwards")
	}
}

// Rule: if a queue is sealed, no pass posts a send or a receive of this queue. (The owner of a sealed
// queue may destroy the queue pair without holding the turn.) Requests that were submitted before the
// queue was sealed end with the cause of the queue's failure.
func TestNothingOfASealedQueueIsPosted(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	ended := make(chan error, 2)
	sink := called(func(_ reactor.Completion, err error) { ended <- err })
	a.do(t, func() {
		before := a.r.Snapshot()
		s, p := a.write(b)
		s.Sink = sink
		must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
		_, sge := a.bytes(0, 8)
		must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: sink}, []verbs.SGE{sge}, reactor.Block))
		a.q.Fail(errOver)
		a.q.Seal()
		a.r.Flush()
		after := a.r.Snapshot()
		if after.Doorbells != before.Doorbells || after.RecvDoorbells != before.RecvDoorbells {
			t.Errorf("a sealed queue posted %d lists of sends and %d lists of receives, want none", after.Doorbells-before.Doorbells, after.RecvDoorbells-before.RecvDoorbells)
		}
	})
	for range 2 {
		if err := comes(t, "the end of a request", ended); !errors.Is(err, errOver) {
			t.Errorf("a request of the sealed queue ended with %v, want %v", err, errOver)
		}
	}
	a.release(t, errOver)
}
