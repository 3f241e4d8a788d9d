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

// Rule: Close may be called again any number of times, after a Close that returned its context's
// error and after a Close that returned nil. A Close that returns nil has destroyed the reactor's
// completion queues and channel.
func TestCloseCanBeRepeated(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	closes := func() {
		for i := range 5 {
			if err := l.r.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("close %d with an ended context: %v", i, err)
			}
		}
	}
	closes()
	closing(t, l.r)
	closes()
	for i := range 2 {
		if err := l.r.Close(bounded(t)); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	if err := l.r.Do(context.Background(), func() { t.Error("a function ran in a closed reactor") }); !errors.Is(err, reactor.ErrClosed) {
		t.Errorf("Do after Close: %v, want ErrClosed", err)
	}
	if left := l.ctx.Objects(); left.CQ+left.CompChannel != 0 {
		t.Errorf("left by Close: %v", left)
	}
}

// closing() waits until a Close has begun. From then on Do returns ErrClosed.
func closing(t testing.TB, r *reactor.Reactor) {
	t.Helper()
	ctx := bounded(t)
	for {
		switch err := r.Do(ctx, func() {}); {
		case errors.Is(err, reactor.ErrClosed):
			return
		case err != nil:
			t.Fatalf("waiting for Close to begin: %v", err)
		}
	}
}

// Rule: Close of a reactor with a queue returns ErrBusy and changes nothing. It succeeds after the
// queue was released.
func TestCloseIsRefusedWhileAQueueLives(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	if err := a.r.Close(bounded(t)); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("close with a queue: %v, want ErrBusy", err)
	}
	s, p := a.write(b)
	f, err := a.q.Submit(context.Background(), s, &p, reactor.Block)
	await(t, f, err) // the reactor still works
	a.close(t)
}

// Rule: Close waits for a running callback, but only until the context of Close ends. The next
// Close waits for the callback again.
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
		t.Errorf("close while a callback runs: %v, want the context's error", err)
	}
	if err := l.r.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a second close while a callback runs: %v, want the context's error", err)
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
		t.Errorf("Map of a settled future after Close: %d, %v; want 8 bytes", n, err)
	}
	got := make(chan error, 1)
	fs[1].Then(func(_ reactor.Completion, err error) { got <- err })
	if err := comes(t, "Then", got); err != nil {
		t.Errorf("Then of a settled future after Close got %v", err)
	}
}

// Rule: functions and tasks still run if they are queued after Close or while Close runs. A
// goroutine may be waiting for them.
func TestWhatComesAfterCloseRuns(t *testing.T) {
	for what, queue := range map[string]func(r *reactor.Reactor, fn func()){
		"Defer":    (*reactor.Reactor).Defer,
		"Schedule": func(r *reactor.Reactor, fn func()) { r.Schedule(&reactor.Task{Fn: fn}, false) },
		"Callback": (*reactor.Reactor).Callback,
	} {
		for _, when := range []string{"after", "meeting"} {
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
					comes(t, "the pushing", pushed)
				}
				for range n {
					comes(t, "a function", ran)
				}
			})
		}
	}
}

// watchedEnd is a device that lets the test act while a reactor's objects are destroyed.
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
		for range 10_000 { // gives a wrong pass the time to begin
			runtime.Gosched()
		}
		destroying.Store(false)
	}
	l.close(t)
	if comes(t, "the function", beside) {
		t.Error("a function ran holding the turn while Close destroyed the completion channel")
	}
}

// Rule: passes post no send and no receive of a sealed queue, because the queue pair may be destroyed
// without the turn. Submitted requests end with the queue's cause of failure.
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
			t.Errorf("%d lists of sends and %d of receives were posted", after.Doorbells-before.Doorbells, after.RecvDoorbells-before.RecvDoorbells)
		}
	})
	for range 2 {
		if err := comes(t, "the end of a request", ended); !errors.Is(err, errOver) {
			t.Errorf("it ended with %v, want %v", err, errOver)
		}
	}
	a.release(t, errOver)
}
