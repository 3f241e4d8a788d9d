package runtime

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a sink panics with ErrDeviceRemoved, only the sink's connection fails. (If the device
// returned ErrDeviceRemoved, all connections of the runtime would fail.)
func TestASinkMayPanicWithErrDeviceRemoved(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	r := newRudeRig(t, Config{})
	op := WriteOp(small(r.local), r.remote)
	if err := r.a.StartTo(testContext(t), &op, rudeSink(func(SinkContext) { panic(verbs.ErrDeviceRemoved) }), 0); err != nil {
		t.Fatal(err)
	}
	arrives(t, "the call of OnPanic", r.panics)
	arrives(t, "the end of the connection", r.a.Done())
	r.goesOn()
}

// Rule: the sink of a split operation is called with the turn held, even if all fragments complete
// before the poster (the goroutine that posts the fragments) has finished. So a panic of the sink
// does not reach the poster.
func TestASinkOfPiecesIsCalledInATurn(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	r := newRudeRig(t, Config{})
	told := make(chan bool, 1)
	m := &fragments{sink: rudeSink(func(turn SinkContext) {
		told <- r.a.q.InSink(turn)
		panic(errRude)
	})}
	m.left.Store(1) // all fragments have completed, and the poster has not finished
	m.posted(r.a)
	if !arrives(t, "the call of the sink", told) {
		t.Error("the sink was called without the turn, want a call with the turn held")
	}
	arrives(t, "the call of OnPanic", r.panics)
	arrives(t, "the end of the connection", r.a.Done())
	if err := r.a.Err(); !errors.Is(err, errRude) {
		t.Errorf("the connection ended with %v, want %v, the value of the panic", err, errRude)
	}
	r.goesOn()
}

// Rule: if a sink of a closed connection panics, no other connection fails. This holds even for a new
// connection whose queue has the same number as the queue of the closed connection.
func TestASinkOfAConnectionThatIsGone(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	r := newRudeRig(t, Config{})
	if err := r.a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	ln := must.Get(r.b.rt.Listen(":0"))(t)
	next := must.Get(r.a.rt.Dial(testContext(t), ln.Addr().String()))(t)
	// RecvTo makes this call, too, if the connection ends after RecvTo has found the connection open.
	r.a.addRecvWaiter(&recvWaiter{sink: rudeSink(func(SinkContext) { panic(errRude) })}, false)
	arrives(t, "the call of OnPanic", r.panics)
	if err := r.a.sh.r.Do(testContext(t), func() {}); err != nil {
		t.Error(err)
	}
	if err := next.Err(); err != nil {
		t.Errorf("the new connection ended with %v, want no end", err)
	}
	r.goesOn()
}

// Rule: Do and DoAll call the method Done of their context only once, before they submit. Done may be
// user code that blocks or ends the goroutine. After the submission Done must not be called:
// Do and DoAll submit without waking the loop, so from then on their goroutine must drive the reactor.
func TestSynchronousFormsAskOnce(t *testing.T) {
	notOnDevice(t, "the test makes devices of its own")
	for what, do := range map[string]func(*contextRig, context.Context) error{
		"Do of a SEND": func(r *contextRig, ctx context.Context) error {
			_, err := r.a.Do(ctx, new(SendOp(r.local)))
			return err
		},
		"DoAll of an atomic and a SEND": func(r *contextRig, ctx context.Context) error {
			_, err := r.a.DoAll(ctx, []Op{FetchAndAddOp(r.remote, 1), SendOp(r.local)}, nil)
			return err
		},
		"Do of a WRITE of several fragments": func(r *contextRig, ctx context.Context) error {
			s, err := r.region[0].Slice(0, 1500)
			if err == nil {
				_, err = r.a.Do(ctx, new(WriteOp(s, r.remote)))
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newContextRig(t)
			ctx := rudeContext{testContext(t), func() {
				if r.asked++; r.asked > 1 {
					t.Errorf("Done was called %d times, want once", r.asked)
				}
			}, func() {}}
			if err := do(r, ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// threeSent sends three messages and returns their futures.
func threeSent(t *testing.T, a *Conn) (fs [3]Future) {
	t.Helper()
	for i := range fs {
		var err error
		if fs[i], err = a.SendBytes(testContext(t), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// Rule: a handler may await operations and close the connection, even if there is only one handler
// goroutine and other handlers wait for this goroutine.
func TestBusyHandlersHoldUpNothing(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, _ := connected(t, Config{Handlers: 1, NoCallerDriving: parked})
		ctx := testContext(t)
		fs := threeSent(t, a)
		var wg sync.WaitGroup
		wg.Add(3)
		a.rt.Handle(fs[0], func(Result, error) {
			defer wg.Done()
			f, err := a.SendBytes(ctx, []byte("x"))
			if err == nil {
				_, err = f.Await(ctx)
			}
			if err != nil {
				t.Errorf("a handler sent a message and awaited the result: %v, want success", err)
			}
			if err := a.Close(ctx); err != nil {
				t.Errorf("a handler closed the connection: %v, want nil", err)
			}
		})
		a.rt.Handle(fs[1], func(Result, error) { wg.Done() })
		a.rt.Handle(fs[2], func(Result, error) { wg.Done() })
		wg.Wait()
	}
}

// Rule: if Handle is called after the runtime is closed, it still calls its function.
func TestHandleAfterClose(t *testing.T) {
	a, _ := connected(t, Config{})
	fs := threeSent(t, a)
	<-fs[2].Done()
	if err := a.rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	ran := make(chan struct{}, 3)
	for _, f := range fs {
		a.rt.Handle(f, func(Result, error) { ran <- struct{}{} })
	}
	for range fs {
		<-ran
	}
}

// Rule: without Config.OnPanic, a handler's panic ends the program.
func TestHandlerPanicEndsTheProgram(t *testing.T) {
	const asked = "VERBENA_TEST_HANDLER_PANICS"
	if os.Getenv(asked) != "" {
		h := must.Get(newHandlers(1, nil))(t)
		h.Queue(&handler{fn: func(Result, error) { panic("a handler's own") }})
		<-make(chan struct{})
	}
	out, err := itself(t, "TestHandlerPanicEndsTheProgram", asked+"=1")
	if err == nil || !strings.Contains(string(out), "panic: a handler's own") {
		t.Fatalf("the child process ended with %v and printed %q, want an error, and the panic of the handler in the output", err, out)
	}
}
