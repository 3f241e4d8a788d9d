package reactor_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

var errRude = errors.New("the test panics in user code")

// rudeSink makes a sink of a function that may panic or end its goroutine.
type rudeSink func()

func (s rudeSink) Complete(reactor.SinkContext, reactor.Completion, error) { s() }

// eachRude calls test for each configuration in manners, and for each way in which user code can
// end without returning. The arguments of test are a configuration, a function that ends in this way, the
// number of panics that one call of this function raises, and the channel to which Config.OnPanic sends
// each panic.
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

// took waits until OnPanic has received n panics, and checks them.
func took(t *testing.T, seen chan *reactor.PanicError, n int) {
	t.Helper()
	for i := range n {
		select {
		case e := <-seen:
			if !errors.Is(e, errRude) {
				t.Errorf("OnPanic got %v, want %q", e, errRude)
			}
		case <-bounded(t).Done():
			t.Fatalf("OnPanic was called %d times within %v, want %d", i, patience, n)
		}
	}
}

// Rule: if a function on the loop or the callback goroutine panics or ends its goroutine, the functions
// queued after it are still called, each one time. Except for timers, they are called in order. Do
// returns even if its function does not.
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
			"Notify":   func(fn func()) { a.r.Defer(func() { a.r.Notify(fn) }) },
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
						t.Fatalf("%s: function %d was called, want function %d next", what, k, i)
					}
				case <-bounded(t).Done():
					t.Fatalf("%s: %d functions were called within %v, want %d", what, i, patience, n)
				}
			}
			took(t, seen, panics*n/2)
			must.Do(t, a.r.Do(bounded(t), func() {}))
			if len(got) > 0 {
				t.Errorf("%s: after one call of each function there were %d further calls, want 0", what, len(got))
			}
		}
	})
}

// Rule: if a sink that Release calls panics or ends its goroutine, Release still calls the other sinks,
// and returns to its caller.
func TestSinksOfAReleaseThatDoNotReturn(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		a, b := pair(t, cfg, reactor.QueueConfig{})
		defer b.close(t)
		bystander := a.another(t, reactor.QueueConfig{})
		const n = 4
		told, on := make(chan int, 2*n), make(chan struct{})
		_, sge := a.bytes(0, 8)
		for i := range n {
			must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: rudeSink(func() { told <- i; rude() })}, []verbs.SGE{sge}, reactor.Block))
		}
		must.Do(t, a.r.Do(bounded(t), func() { a.r.Flush() }))
		must.Do(t, a.r.Do(bounded(t), func() {
			try(t, a.q.QP().Close())
			try(t, a.q.Release(reactor.ErrClosed))
			if len(told) != n {
				t.Errorf("when Release returned, %d sinks had been called, want %d", len(told), n)
			}
			close(on)
		}))
		comes(t, "the function that called Release", on)
		took(t, seen, panics*n)
		bystander.closeQueue(t)
		a.closeRest(t)
	})
}

// Rule: a stepped reactor calls all queued functions, even if one of them panics or ends the goroutine
// that called Step.
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

// Rule: if a sink has returned, and then another function in the same run of the loop tasks panics, the
// queue of the sink does not fail.
func TestAPanicFailsNoQueueThatWasCalledBefore(t *testing.T) {
	for _, cfg := range manners {
		seen := make(chan *reactor.PanicError, 1)
		cfg.OnPanic = func(e *reactor.PanicError) { seen <- e }
		a, b := pair(t, cfg, reactor.QueueConfig{})
		must.Do(t, a.r.Do(bounded(t), func() {
			a.r.Defer(func() { a.q.Notify(rudeSink(func() {})) })
			a.r.Defer(func() { panic(errRude) })
		}))
		took(t, seen, 1)
		must.Do(t, a.r.Do(bounded(t), func() {}))
		if err := a.q.Err(); err != nil {
			t.Errorf("the queue failed with %v, want no failure", err)
		}
		a.close(t)
		b.close(t)
	}
}

// Rule: if a sink panics, its queue fails with the panic as the cause, and OnFail is called with
// that cause. If a sink ends its goroutine without a panic, the queue does not fail.
func TestASinkThatPanicsFailsItsQueue(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg reactor.Config, rude func(), panics int, seen chan *reactor.PanicError) {
		a, b := pair(t, cfg, reactor.QueueConfig{})
		defer b.close(t)
		defer a.close(t)
		failed := make(chan error, 2)
		a.do(t, func() {
			a.q.OnFail(func(err error) { failed <- err })
			a.q.Notify(rudeSink(rude))
		})
		took(t, seen, panics)
		must.Do(t, a.r.Do(bounded(t), func() {}))
		if len(failed) != panics || errors.Is(a.q.Err(), errRude) != (panics > 0) {
			t.Fatalf("OnFail was called %d times and Err returned %v, want %d calls, and an error that wraps %q = %t", len(failed), a.q.Err(), panics, errRude, panics > 0)
		}
		for range panics {
			if err := <-failed; !errors.Is(err, errRude) {
				t.Errorf("OnFail got %v, want %v", err, errRude)
			}
		}
	})
}

// Rule: a function that is deferred after Close may panic or end its goroutine. The other
// functions are still called, and OnPanic receives the panic.
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
		for i := range n {
			select {
			case <-called:
			case <-bounded(t).Done():
				t.Fatalf("%d functions were called within %v, want %d", i, patience, n)
			}
		}
		took(t, seen, panics*n)
	})
}

// errOver is the cause with which the tests of this package fail and release queues.
var errOver = errors.New("the test is over")

// Rule: after a failure the owner may release its queue as soon as no request is outstanding. The
// last outstanding request completes one time, even if this request caused the failure.
func TestOwnerReleasesWhileTheLastReceiveCompletes(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	gone := make(chan struct{})
	a.do(t, func() {
		a.q.OnFail(func(error) {
			a.q.Idle(func() { a.releaseHeld(t, errOver); close(gone) })
		})
	})
	var ended atomic.Int64
	_, small := a.bytes(0, 8)
	must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: called(func(_ reactor.Completion, err error) {
		ended.Add(1)
		// Soft-RoCE reports LOC_QP_OP_ERR: a message that does not fit the receive counts as
		// malformed there (Linux rxe_resp.c, send_data_in).
		if !errors.Is(err, verbs.StatusError(verbs.WCLocLenErr)) && !(onDevice() && errors.Is(err, verbs.StatusError(verbs.WCLocQPOpErr))) {
			t.Errorf("the receive ended with %v, want LOC_LEN_ERR", err)
		}
	})}, []verbs.SGE{small}, reactor.Block))
	_, large := b.bytes(0, 64)
	f := must.Get(b.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{large}}, reactor.Block))(t)
	f.Discard()
	comes(t, "the release", gone)
	a.do(t, func() {}) // waits for the next pass
	if n := ended.Load(); n != 1 {
		t.Fatalf("the receive completed %d times, want once", n)
	}
}

// Rule: a sink may release its own queue. Requests that have already succeeded still end with
// success, each one time. Requests that are submitted after the release are refused with its cause.
func TestReleaseFromASink(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	const writes = 4
	results := make(tally, 16)
	s, p := a.write(b)
	var released atomic.Bool
	s.Sink = called(func(_ reactor.Completion, err error) {
		results <- err
		if released.CompareAndSwap(false, true) {
			a.releaseHeld(t, errOver)
		}
	})
	a.do(t, func() {
		for range writes { // only the last WRITE is signaled, so its completion ends all four
			must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
		}
	})
	for i := range writes {
		if err := comes(t, "the result of a WRITE", results); err != nil {
			t.Errorf("WRITE %d had succeeded, but its sink got %v, want nil", i, err)
		}
	}
	if _, err := a.q.Submit(context.Background(), s, &p, reactor.NonBlock); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, errOver) {
		t.Errorf("Submit to the released queue returned %v, want ErrQueueFailed that wraps the cause", err)
	}
	a.do(t, func() {})
	if n := len(results); n != 0 {
		t.Fatalf("the sink was called %d times for %d WRITEs, want one time for each", writes+n, writes)
	}
}

// Rule: a sink may release its own queue while other requests are outstanding. The outstanding
// requests end with the cause of the release.
func TestReleaseFromASinkEndsWhatIsOut(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SignalEvery: 1})
	defer b.close(t)
	defer a.closeRest(t)
	box := make(tally, 4)
	s, p := a.write(b)
	s.Sink = called(func(_ reactor.Completion, err error) { box <- err; a.releaseHeld(t, errOver) })
	var f reactor.Future
	a.do(t, func() {
		_, err := a.q.Submit(context.Background(), s, &p, reactor.NonBlock)
		must.Do(t, err)
		_, sge := a.bytes(0, 8)
		f, err = a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock) // the peer has no receive, so the SEND stays outstanding
		must.Do(t, err)
	})
	if err := comes(t, "the result of the WRITE", box); err != nil {
		t.Errorf("the WRITE ended with %v, want success", err)
	}
	if _, err := f.Await(bounded(t)); !errors.Is(err, errOver) {
		t.Errorf("the outstanding SEND ended with %v, want the cause of the release", err)
	}
	if st := a.r.Stats(); st.Outstanding != 0 || len(box) != 0 {
		t.Errorf("%d sends are outstanding and the sink of the WRITE was called %d more times, want 0 and 0", st.Outstanding, len(box))
	}
}

// Rule: if the device refuses requests of two queues in one pass, a sink of one queue may release the
// other queue. Each request of the released queue still ends one time, with the device's error.
func TestSinkOfARefusedRequestReleasesAnother(t *testing.T) {
	for name, first := range map[string]int{"the released queue submits second": 0, "the released queue submits first": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLone(t, reactor.Config{}, nil)
			defer l.close(t)
			var qs [2]*reactor.Queue
			release := func(q *reactor.Queue) {
				try(t, q.QP().Close())
				try(t, q.Release(errOver))
			}
			const n = 3
			refused, other := make(tally, 2), make(tally, 2*n)
			posts := []func(){
				func() {
					must.Get(qs[0].Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: called(func(_ reactor.Completion, err error) {
						refused <- err
						release(qs[1])
					})}, &reactor.Payload{}, reactor.NonBlock))(t)
				},
				func() {
					for range n {
						must.Get(qs[1].Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: other}, &reactor.Payload{}, reactor.NonBlock))(t)
					}
				},
			}
			for i := range qs {
				qs[i] = must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd}))(t)
			}
			l.do(t, func() {
				for _, q := range qs {
					must.Do(t, q.Admit())
					init := q.InitAttr()
					// the queue pair is in RESET and refuses every post
					q.Bind(must.Get(l.pd.CreateQP(init))(t), init.Cap)
				}
				posts[first]()
				posts[1-first]()
			})
			var op *verbs.OpError
			for i := range n + 1 {
				box := other
				if i == n {
					box = refused
				}
				if err := comes(t, "a refused request", box); !errors.As(err, &op) || op.Op != "ibv_post_send" {
					t.Errorf("request %d ended with %v, want an error of ibv_post_send", i, err)
				}
			}
			l.do(t, func() { release(qs[0]) })
			if st := l.r.Stats(); st.Outstanding != 0 || len(other) != 0 || len(refused) != 0 {
				t.Errorf("%d sends are outstanding, and the sinks were called %d and %d more times, want 0, 0 and 0", st.Outstanding, len(other), len(refused))
			}
		})
	}
}

// Rule: the function of a reactor.Task may call Flush. A request that it submits before Flush is
// posted one time.
func TestTaskMayFlush(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	box := make(tally, 4)
	s, p := a.write(b)
	s.Sink = box
	task := reactor.Task{Fn: func() {
		_, err := a.q.Submit(context.Background(), s, &p, reactor.NonBlock)
		try(t, err)
		a.r.Flush()
	}}
	a.r.Schedule(&task, false)
	if err := comes(t, "the result of the WRITE", box); err != nil {
		t.Fatalf("the WRITE ended with %v, want success", err)
	}
	if st := a.r.Stats(); st.WorkRequests != 1 || st.Outstanding != 0 || st.Completions != 1 || st.Stale != 0 {
		t.Fatalf("after one WRITE Stats counts %d posted sends, %d outstanding sends, %d ended operations and %d stale completions; want 1, 0, 1 and 0", st.WorkRequests, st.Outstanding, st.Completions, st.Stale)
	}
}

// Rule: when the result of an operation is delivered, the operation's slot is already free. This
// holds for a future and for a sink.
func TestRoomIsFreeBeforeTheResult(t *testing.T) {
	a, b := pair(t, reactor.Config{NoCallerDriving: true}, reactor.QueueConfig{SendDepth: 1})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	s, p := a.write(b)
	rounds := 5000
	if onDevice() {
		rounds = 500 // on a device the loop and the test sleep in each round
	}
	for i := range rounds {
		f, err := a.q.Submit(context.Background(), s, &p, reactor.NonBlock)
		if err != nil {
			t.Fatalf("Submit of WRITE %d returned %v, want nil: no request is outstanding", i, err)
		}
		if _, err := f.Await(ctx); err != nil {
			t.Fatalf("WRITE %d ended with %v, want success", i, err)
		}
	}
	again, done := make(chan error, 1), make(tally, 1)
	second := *s
	second.Sink = done
	s.Sink = called(func(reactor.Completion, error) {
		_, err := a.q.Submit(context.Background(), &second, &p, reactor.NonBlock)
		again <- err
	})
	must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
	if err := comes(t, "the call of the sink", again); err != nil {
		t.Fatalf("Submit in the sink of the only request returned %v, want nil", err)
	}
	must.Do(t, comes(t, "the result of the second WRITE", done))
}
