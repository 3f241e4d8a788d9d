package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	stdruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// rudeRig has two runtimes and two connections. The first connection calls rude code: user code that
// panics or ends its goroutine. The second connection must not be affected.
type rudeRig struct {
	t       testing.TB
	p       *soft.Provider
	a, b    *Conn // the first connection; the runtime of a calls the rude code
	c, d    *Conn // the second connection; c is on a's runtime, d on b's
	panics  chan *PanicError
	local   Slice  // memory for operations of a
	remote  Remote // memory of b's runtime, for operations of a
	other   Slice  // memory for operations of c
	distant Remote // memory of b's runtime, for operations of c
	regions []*Region
}

// eachRude runs a test with each kind of reactor configuration and each way in which rude code can
// end.
func eachRude(t *testing.T, test func(t *testing.T, cfg Config, how string, rude func())) {
	notOnDevice(t, "the test makes devices of its own, and takes their ports down")
	ways := map[string]func(){
		"panic": func() { panic(errRude) }, "goexit": stdruntime.Goexit,
		"panic during goexit": func() { defer func() { panic(errRude) }(); stdruntime.Goexit() },
	}
	for manner, cfg := range map[string]Config{
		"waiting goroutines drive": {}, "only the loop makes passes": {NoCallerDriving: true}, "the loop spins": {Policy: reactor.PolicyThroughput},
	} {
		for how, rude := range ways {
			t.Run(manner+"/"+how, func(t *testing.T) { test(t, cfg, how, rude) })
		}
	}
}

var errRude = errors.New("a bug in somebody's code")

func newRudeRig(t *testing.T, cfg Config) *rudeRig {
	t.Helper()
	p, _ := smallPorts(t, 1000)
	r := &rudeRig{t: t, p: p, panics: make(chan *PanicError, 8)}
	cfg.Provider = p
	if os.Getenv(rudeVariable) == "" {
		cfg.OnPanic = func(e *PanicError) { r.panics <- e }
	}
	cfg.Conn.MessageSize, cfg.Conn.Recorder = 512, 8
	r.a, r.b = connected(t, cfg)
	ln := must.Get(r.b.rt.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	r.c = must.Get(r.a.rt.Dial(testContext(t), ln.Addr().String()))(t)
	r.d = must.Get(seat.Await(testContext(t)))(t)
	r.local, r.remote = r.memory(), r.target()
	r.other, r.distant = r.memory(), r.target()
	return r
}

// memory() returns new local memory of a's runtime.
func (r *rudeRig) memory() Slice {
	r.t.Helper()
	region, err := r.a.rt.NewRegion(4096, allAccess)
	if err != nil {
		r.t.Fatal(err)
	}
	r.regions = append(r.regions, region)
	s, err := region.Slice(0, 4000)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// target() returns new memory of b's runtime that a and c may access.
func (r *rudeRig) target() Remote {
	r.t.Helper()
	region, err := r.b.rt.NewRegion(4096, allAccess)
	if err != nil {
		r.t.Fatal(err)
	}
	r.regions = append(r.regions, region)
	at, err := region.Remote(0, 4000)
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// small(s) returns the first 8 bytes of s.
func small(s Slice) Slice {
	part, err := s.Sub(0, 8)
	if err != nil {
		panic(err)
	}
	return part
}

// arrives() waits for a value from ch and returns the value. If ch is closed, it returns the zero value.
// If it waits too long, it fails the test with the stacks of all goroutines.
func arrives[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-testContext(t).Done():
		buf := make([]byte, 1<<20)
		t.Fatalf("%s did not happen in time; the stacks of all goroutines:\n%s", what, buf[:stdruntime.Stack(buf, true)])
	}
	return v
}

// goesOn checks that the second connection and the other functions of a's runtime work, and that
// both runtimes can be closed.
func (r *rudeRig) goesOn() {
	t, ctx := r.t, testContext(r.t)
	t.Helper()
	local, remote := small(r.other), r.distant
	back := make(chan error, 1)
	told := func(_ Result, err error) { back <- err }
	for what, do := range map[string]func(){
		"a WRITE with Do": func() { _, err := r.c.Do(ctx, new(WriteOp(local, remote))); back <- err },
		"a WRITE with a sink": func() {
			op := WriteOp(local, remote)
			if err := r.c.StartTo(ctx, &op, sinkFunc(told), 0); err != nil {
				back <- err
			}
		},
		"a callback given to Then": func() {
			f, err := r.c.Write(ctx, local, remote)
			if err != nil {
				back <- err
				return
			}
			f.Then(told)
		},
		"a function given to Handle": func() {
			f, err := r.c.Write(ctx, local, remote)
			if err != nil {
				back <- err
				return
			}
			r.c.rt.Handle(f, told)
		},
		"a function given to After": func() { r.a.rt.After(time.Microsecond, func() { back <- nil }) },
		"a call of Recorded":        func() { r.c.Recorded(); back <- nil },
		"a message": func() {
			if _, err := r.c.SendBytes(ctx, []byte("x")); err != nil {
				back <- err
				return
			}
			m, err := r.d.RecvWait(ctx)
			if err == nil {
				err = m.Release()
			}
			back <- err
		},
	} {
		go do()
		if err := arrives(t, "the end of "+what, back); err != nil {
			t.Errorf("after the rude code, %s failed: %v", what, err)
		}
	}
	r.closes()
}

// closes() checks that all regions and both runtimes can be closed.
func (r *rudeRig) closes() {
	t, ctx := r.t, testContext(r.t)
	t.Helper()
	for _, region := range r.regions {
		if err := region.Close(); err != nil {
			t.Errorf("closing a region: %v, want nil", err)
		}
	}
	for _, rt := range []*Runtime{r.a.rt, r.b.rt} {
		closed := make(chan error, 1)
		go func() { closed <- rt.Close(ctx) }()
		if err := arrives(t, "the return of Runtime.Close", closed); err != nil {
			t.Errorf("Runtime.Close: %v, want nil", err)
		}
	}
}

// rudeCode is a kind of user code that the runtime calls.
type rudeCode struct {
	// start makes the runtime call the given function once. The runtime may call the function on the
	// goroutine that called start. The function may end this goroutine.
	start func(r *rudeRig, code func())
	fails bool // if the function panics, the connection a fails
}

// rudeSink is a sink that calls a function.
type rudeSink func(t SinkContext)

func (s rudeSink) Complete(t SinkContext, _ Result, _ error) { s(t) }

// Received implements MessageSink.
func (s rudeSink) Received(m Message, _ error) {
	_ = m.Release()
	s(SinkContext{})
}

// rudeStart starts an operation whose sink calls the given function. rudeStart does not wake the loop, so
// the sink is called by the goroutine that makes the next pass.
func rudeStart(r *rudeRig, op Op, code func()) {
	_, err := r.a.start(context.Background(), &op, submitOpts{mode: reactor.NoWakeup, sink: rudeSink(func(SinkContext) { code() })})
	if err != nil {
		r.t.Error(err)
	}
}

var rudeCodes = map[string]rudeCode{
	"a sink, while a goroutine calls Do": {fails: true, start: func(r *rudeRig, code func()) {
		rudeStart(r, WriteOp(small(r.local), r.remote), code)
		_, _ = r.a.Do(context.Background(), new(WriteOp(small(r.local), r.remote)))
	}},
	"a sink, while a goroutine awaits another operation": {fails: true, start: func(r *rudeRig, code func()) {
		rudeStart(r, WriteOp(small(r.local), r.remote), code)
		f, err := r.c.Batch().Start(context.Background(), new(WriteOp(small(r.other), r.distant)))
		if err == nil {
			_, _ = f.Await(context.Background())
		}
	}},
	"a sink, while a goroutine waits for a message": {fails: true, start: func(r *rudeRig, code func()) {
		rudeStart(r, WriteOp(small(r.local), r.remote), code)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, _ = r.c.RecvWait(ctx)
	}},
	"a sink, called by the loop": {fails: true, start: func(r *rudeRig, code func()) {
		op := WriteOp(small(r.local), r.remote)
		if err := r.a.StartTo(context.Background(), &op, rudeSink(func(SinkContext) { code() }), 0); err != nil {
			r.t.Error(err)
		}
	}},
	"a sink, while a goroutine calls Stats": {fails: true, start: func(r *rudeRig, code func()) {
		rudeStart(r, WriteOp(small(r.local), r.remote), code)
		r.a.rt.Stats()
	}},
	"a sink of an operation that a sink has started": {fails: true, start: func(r *rudeRig, code func()) {
		op := WriteOp(small(r.local), r.remote)
		_, err := r.a.start(context.Background(), &op, submitOpts{mode: reactor.NoWakeup, sink: rudeSink(func(t SinkContext) {
			next := WriteOp(small(r.local), r.remote)
			if err := r.a.StartFromSink(t, &next, rudeSink(func(SinkContext) { code() }), 0); err != nil {
				r.t.Error(err)
			}
		})})
		if err != nil {
			r.t.Error(err)
		}
		_, _ = r.a.Do(context.Background(), new(WriteOp(small(r.local), r.remote)))
	}},
	"a sink of an operation of several fragments": {fails: true, start: func(r *rudeRig, code func()) {
		op := WriteOp(r.local, r.remote)
		if err := r.a.StartTo(context.Background(), &op, rudeSink(func(SinkContext) { code() }), 0); err != nil {
			r.t.Error(err)
		}
	}},
	"a sink of a cancelled operation": {fails: false, start: func(r *rudeRig, code func()) {
		rudeStart(r, WriteOp(small(r.local), r.remote), code)
		_ = r.a.Cancel(testContext(r.t))
	}},
	"a MessageSink, given to RecvTo before the message arrives": {fails: true, start: func(r *rudeRig, code func()) {
		r.a.RecvTo(rudeSink(func(SinkContext) { code() }))
		if _, err := r.b.SendBytes(testContext(r.t), []byte("x")); err != nil {
			r.t.Error(err)
		}
	}},
	"a MessageSink, given to RecvTo after the message has arrived": {fails: true, start: func(r *rudeRig, code func()) {
		f, err := r.b.SendBytes(testContext(r.t), []byte("x"))
		if err == nil {
			_, err = f.Await(testContext(r.t))
		}
		if err != nil {
			r.t.Error(err)
		}
		r.a.RecvTo(rudeSink(func(SinkContext) { code() }))
	}},
	"a MessageSink, of a connection that is closed": {start: func(r *rudeRig, code func()) {
		r.a.RecvTo(rudeSink(func(SinkContext) { code() }))
		_ = r.a.Close(testContext(r.t))
	}},
	"a callback given to Then": {start: func(r *rudeRig, code func()) {
		f, err := r.a.Write(testContext(r.t), small(r.local), r.remote)
		if err != nil {
			r.t.Error(err)
		}
		f.Then(func(Result, error) { code() })
	}},
	"a function given to Map": {start: func(r *rudeRig, code func()) {
		f, err := r.a.Write(testContext(r.t), small(r.local), r.remote)
		if err != nil {
			r.t.Error(err)
		}
		futures.Map(f, func(Result, error) (int, error) { code(); return 0, nil })
	}},
	"a function given to Handle": {start: func(r *rudeRig, code func()) {
		f, err := r.a.Write(testContext(r.t), small(r.local), r.remote)
		if err != nil {
			r.t.Error(err)
		}
		r.a.rt.Handle(f, func(Result, error) { code() })
	}},
	"a reactor.Job": {start: func(r *rudeRig, code func()) { r.a.Loop().r.Queue(reactor.NewJob(code)) }},
	"a function given to After": {start: func(r *rudeRig, code func()) {
		r.a.rt.After(time.Microsecond, code)
	}},
	"a function given to WatchDevice": {start: func(r *rudeRig, code func()) {
		var stop func()
		stop = r.a.rt.WatchDevice(func(DeviceEvent) { stop(); code() })
		for _, up := range []bool{false, true} {
			if err := r.p.SetPort("soft0", up); err != nil {
				r.t.Error(err)
			}
		}
	}},
}

// Rule: if user code of any kind panics or ends its goroutine, the runtime still works and can be
// closed. Config.OnPanic receives each panic, with the stack of its origin. If a sink panics, the
// sink's connection fails with the panic as its cause, and no other connection fails.
func TestUserCodeKeepsNothing(t *testing.T) {
	for kind, k := range rudeCodes {
		t.Run(kind, func(t *testing.T) {
			eachRude(t, func(t *testing.T, cfg Config, how string, rude func()) {
				r := newRudeRig(t, cfg)
				called, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					k.start(r, func() { close(called); rude() })
				}()
				arrives(t, "the call of "+kind, called)
				arrives(t, "the end of the goroutine", ended)
				if how != "goexit" {
					e := arrives(t, "the call of OnPanic", r.panics)
					if e.Value != errRude || !errors.Is(e, errRude) || !strings.Contains(string(e.Stack), "eachRude") {
						t.Errorf("OnPanic got %v, want %v and a stack that contains eachRude; the stack:\n%s", e, errRude, e.Stack)
					}
				}
				if k.fails && how != "goexit" {
					arrives(t, "the end of the connection", r.a.Done())
					if err := r.a.Err(); !errors.Is(err, errRude) {
						t.Errorf("the connection of the sink ended with %v, want %v", err, errRude)
					}
				}
				if err := r.c.Err(); err != nil {
					t.Errorf("the second connection ended with %v, want no end", err)
				}
				r.goesOn()
				if n := len(r.panics); n > 0 {
					t.Errorf("OnPanic got %d further panics, want 0; the first of them is %v", n, <-r.panics)
				}
			})
		})
	}
}

// Rule: if a sink panics or ends its goroutine, the results of the other operations of the same
// pass are still delivered, once and in order.
func TestTheOthersOfATurnAreTold(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg Config, how string, rude func()) {
		r := newRudeRig(t, cfg)
		got := make(chan int, 16)
		held, hold := make(chan struct{}), make(chan struct{})
		r.c.sh.r.Defer(func() { close(held); <-hold }) // holds the turn until all operations are submitted
		arrives(t, "the start of the deferred function", held)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer close(hold)
			for i := range 9 {
				op := WriteOp(small(r.other), r.distant)
				_, err := r.c.start(context.Background(), &op, submitOpts{mode: reactor.NoWakeup, sink: sinkFunc(func(Result, error) {
					got <- i
					if i%3 == 1 {
						rude()
					}
				})})
				if err != nil {
					t.Error(err)
				}
			}
			r.c.Batch().Flush()
		}()
		arrives(t, "the end of the goroutine", ended)
		for i := range 9 {
			if n := arrives(t, fmt.Sprint("the call of sink ", i), got); n != i {
				t.Fatalf("sink %d was called, want the call of sink %d", n, i)
			}
		}
		if err := r.c.Cancel(testContext(t)); err != nil {
			t.Error(err)
		}
		if n := len(got); n > 0 {
			t.Errorf("%d more calls of sinks, want one call for each sink", n)
		}
		if _, err := r.a.Do(testContext(t), new(WriteOp(small(r.local), r.remote))); err != nil {
			t.Errorf("a WRITE of another connection: %v, want success", err)
		}
		r.closes()
	})
}

// Rule: if a MessageSink panics or ends its goroutine, the other MessageSinks of the connection are
// still called, once each and in order.
func TestTheOthersWhoWaitForMessagesAreTold(t *testing.T) {
	eachRude(t, func(t *testing.T, cfg Config, how string, rude func()) {
		r := newRudeRig(t, cfg)
		const n = 6
		got := make(chan int, 2*n)
		for i := range n {
			r.a.RecvTo(rudeSink(func(SinkContext) { got <- i; rude() }))
		}
		if _, err := r.b.SendBytes(testContext(t), []byte("x")); err != nil {
			t.Error(err)
		}
		if n := arrives(t, "the first call of a MessageSink", got); n != 0 {
			t.Fatalf("the message went to sink %d, want sink 0", n)
		}
		if err := r.a.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		for i := 1; i < n; i++ {
			if k := arrives(t, fmt.Sprint("the call of sink ", i), got); k != i {
				t.Fatalf("sink %d was called, want the call of sink %d", k, i)
			}
		}
		r.goesOn()
		if n := len(got); n > 0 {
			t.Errorf("%d more calls of sinks, want one call for each sink", n)
		}
	})
}

// rudeReceiver panics when it is called.
type rudeReceiver struct{}

// Received implements MessageSink.
func (rudeReceiver) Received(Message, error) { panic(errChaos) }

// Rule: if the connection is closed, RecvTo calls its sink with the connection's cause. If this sink
// panics, Config.OnPanic gets the panic, and RecvTo returns normally.
func TestASinkOfAGoneConnectionMayPanic(t *testing.T) {
	told := make(chan *PanicError, 1)
	a, _ := connected(t, Config{OnPanic: func(e *PanicError) { told <- e }})
	if err := a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	a.RecvTo(rudeReceiver{})
	select {
	case e := <-told:
		if !errors.Is(e, errChaos) {
			t.Errorf("OnPanic got %v, want %v", e, errChaos)
		}
	case <-testContext(t).Done():
		t.Error("OnPanic was not called in time")
	}
}
