package reactor_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

var errRude = errors.New("a bug in somebody's code")

type rudeSink func()

func (s rudeSink) Complete(reactor.Turn, reactor.Completion, error) { s() }

// eachRude runs test for each manner of a reactor and each way in which user code can end.
// seen is called for each panic that Config.OnPanic takes.
func eachRude(t *testing.T, test func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError)) {
	for name, cfg := range manners {
		for how, rude := range map[string]func(){
			"panic": func() { panic(errRude) }, "goexit": runtime.Goexit,
			"panic while goexit": func() { defer func() { panic(errRude) }(); runtime.Goexit() },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				seen := make(chan *reactor.PanicError, 16)
				cfg := cfg
				cfg.OnPanic = func(e *reactor.PanicError) { seen <- e }
				panics := 1
				if how == "goexit" {
					panics = 0
				}
				test(t, cfg, rude, panics, seen)
			})
		}
	}
}

// took checks that n panics were taken.
func took(t *testing.T, seen chan *reactor.PanicError, n int) {
	t.Helper()
	for range n {
		select {
		case e := <-seen:
			if !errors.Is(e, errRude) {
				t.Errorf("OnPanic was given %v", e)
			}
		case <-bounded(t).Done():
			t.Fatal("OnPanic was not called")
		}
	}
}

// Rule: functions that the loop or the callback goroutine calls, and do not return, keep
// none behind them from being called, once and in order, and no Do from returning.
func TestFunctionsThatDoNotReturn(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		a, b := pair(t, cfg, reactor.QueueConfig{})
		defer b.close(t)
		defer a.close(t)
		const n = 8
		for what, call := range map[string]func(func()){
			"Defer":    a.r.Defer,
			"Callback": a.r.Callback,
			"After":    func(fn func()) { a.r.After(time.Microsecond, fn) },
			"Tell":     func(fn func()) { a.r.Defer(func() { a.r.Tell(fn) }) },
			"Do":       func(fn func()) { try(t, a.r.Do(bounded(t), fn)) },
		} {
			got := make(chan int, 2*n)
			for i := range n {
				call(func() {
					got <- i
					if i%2 == 0 {
						rude()
					}
				})
			}
			for i := range n {
				select {
				case k := <-got:
					if k != i && what != "After" {
						t.Fatalf("%s: function %d was called in the place of %d", what, k, i)
					}
				case <-bounded(t).Done():
					t.Fatalf("%s: function %d was not called", what, i)
				}
			}
			took(t, seen, panics*n/2)
			check(t, a.r.Do(bounded(t), func() {}))
			if len(got) > 0 {
				t.Errorf("%s: %d functions were called twice", what, len(got))
			}
		}
	})
}

// Rule: a sink that does not return, called by who is in the midst of something (it has
// released a queue), does not keep that from going on.
func TestSinksOfAReleaseThatDoNotReturn(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		a, b := pair(t, cfg, reactor.QueueConfig{})
		defer b.close(t)
		bystander := a.another(t, reactor.QueueConfig{})
		const n = 4
		told, on := make(chan int, 2*n), make(chan struct{})
		_, sge := a.bytes(0, 8)
		for i := range n {
			check(t, a.q.PostRecv(&reactor.Recv{Sink: rudeSink(func() { told <- i; rude() })}, []verbs.SGE{sge}, reactor.Wait))
		}
		check(t, a.r.Do(bounded(t), func() { a.r.Flush() }))
		check(t, a.r.Do(bounded(t), func() {
			try(t, a.q.QP().Close())
			try(t, a.q.Release(reactor.ErrClosed))
			if len(told) != n {
				t.Errorf("Release returned when %d of %d sinks were called", len(told), n)
			}
			close(on)
		}))
		comes(t, "what follows the release", on)
		took(t, seen, panics*n)
		bystander.closeQueue(t)
		a.closeRest(t)
	})
}

// Rule: a stepped reactor, too, calls all, though its owner's goroutine ends in Step.
func TestSteppedUserCodeThatDoesNotReturn(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		now := time.Unix(1, 0)
		cfg.Stepped, cfg.NoCallerDriving, cfg.Now = true, false, func() time.Time { return now }
		a, b := pair(t, cfg, reactor.QueueConfig{})
		defer b.close(t)
		defer a.close(t)
		called := 0
		fn := func() { called++; rude() }
		a.r.Defer(fn)
		a.r.Callback(fn)
		a.r.Callback(fn)
		for range 4 {
			stepped := make(chan struct{})
			go func() {
				defer close(stepped)
				for a.r.Step() {
				}
			}()
			comes(t, "the end of Step", stepped)
		}
		if called != 3 {
			t.Errorf("%d functions were called, want 3", called)
		}
		took(t, seen, panics*3)
	})
}

// Rule: a function that panics fails no queue, though a sink of one was called before it in
// the same errand.
func TestAPanicFailsNoQueueThatWasCalledBefore(t *testing.T) {
	for _, cfg := range manners {
		seen := make(chan *reactor.PanicError, 1)
		cfg.OnPanic = func(e *reactor.PanicError) { seen <- e }
		a, b := pair(t, cfg, reactor.QueueConfig{})
		check(t, a.r.Do(bounded(t), func() {
			a.r.Defer(func() { a.q.Tell(rudeSink(func() {})) })
			a.r.Defer(func() { panic(errRude) })
		}))
		took(t, seen, 1)
		check(t, a.r.Do(bounded(t), func() {}))
		try(t, a.q.Err())
		a.close(t)
		b.close(t)
	}
}

// Rule: what a function does that comes after Close is OnPanic's and its own goroutine's,
// as before.
func TestFunctionsAfterCloseThatDoNotReturn(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		a, b := pair(t, cfg, reactor.QueueConfig{})
		b.close(t)
		a.close(t)
		const n = 3
		called := make(chan int, n)
		for i := range n {
			a.r.Defer(func() { called <- i; rude() })
		}
		for range n {
			select {
			case <-called:
			case <-bounded(t).Done():
				t.Fatal("a function was not called")
			}
		}
		took(t, seen, panics*n)
	})
}
