package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	stdruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

const (
	// chaosAtOnce is the number of rounds that run in parallel. It is more than 1 because a round waits
	// most of the time.
	chaosAtOnce = 4
	// chaosSteps is the maximum number of calls that a round counts (see chaos.step) before it
	// closes the runtimes.
	chaosSteps = 2000
	// chaosPatience limits each wait of a round. In a correct round every wait is much shorter.
	chaosPatience = 60 * time.Second
)

// Rule: if two connected runtimes are closed in either order while goroutines use them, one call of
// Close for each runtime frees all resources. Every call of a goroutine returns, every operation
// ends exactly once, and Config.OnPanic receives every panic of a sink or callback exactly once.
// This also holds if a device is removed before Close, and if user code panics or calls
// runtime.Goexit.
//
// VERBENA_CHAOS_SEED determines the configuration of each round and how the round ends: which device
// is removed, in which order the runtimes are closed, and with which contexts. The operations also
// depend on the scheduling of the goroutines. `make stress` sets VERBENA_CHAOS_ROUNDS to ten thousand.
func TestChaosAtTheEnd(t *testing.T) {
	notOnDevice(t, "the test removes its devices")
	leak.Check(t)
	seed := fromEnv(t, "VERBENA_CHAOS_SEED", uint64(time.Now().UnixNano()))
	rounds := int64(fromEnv(t, "VERBENA_CHAOS_ROUNDS", chaosRounds))
	t.Logf("VERBENA_CHAOS_SEED=%d VERBENA_CHAOS_ROUNDS=%d", seed, rounds)
	var next, ops, panics atomic.Int64
	var workers sync.WaitGroup
	for range chaosAtOnce {
		workers.Go(func() {
			for n := next.Add(1); n <= rounds && !t.Failed(); n = next.Add(1) {
				r := &chaos{t: t, seed: seed, n: uint64(n)}
				r.run()
				ops.Add(r.ended.Load())
				panics.Add(r.panicked.Load())
			}
		})
	}
	workers.Wait()
	t.Logf("%d operations ended, %d panics were reported", ops.Load(), panics.Load())
}

// chaos is one round: two runtimes, and goroutines that use the runtimes until the round closes the
// runtimes. The method start starts the goroutines.
type chaos struct {
	t       *testing.T
	seed, n uint64
	names   atomic.Uint64 // number of random generators made so far; each has its own seed

	server, client *Runtime
	ln             *Listener
	region         *Region         // of the server
	near           *Region         // of the client
	far            Remote          // the descriptor of region
	ctx            context.Context // ends after chaosPatience
	users          sync.WaitGroup
	left           atomic.Int64  // how many calls are still to be counted before the round closes the runtimes
	enough         chan struct{} // closed when left becomes 0

	begun    atomic.Int64 // operations that were accepted and have a sink or a callback
	ended    atomic.Int64 // operations whose sink or callback was called
	raised   atomic.Int64 // panics raised by chaos.rude
	panicked atomic.Int64 // panics that Config.OnPanic has received
}

// fail fails the test, and names the seed and the round. Any goroutine may call it.
func (r *chaos) fail(format string, args ...any) {
	r.t.Errorf("seed %d, round %d: %s", r.seed, r.n, fmt.Sprintf(format, args...))
}

// step counts one call of a goroutine: a Listen, a Dial, an Accept, or a call of chaos.use. If r.left
// becomes 0, step closes r.enough.
func (r *chaos) step() {
	if r.left.Add(-1) == 0 {
		close(r.enough)
	}
}

// random returns a generator for one goroutine.
func (r *chaos) random() *rand.Rand { return rand.New(rand.NewPCG(r.seed+r.n, r.names.Add(1))) }

func (r *chaos) run() {
	rng := r.random()
	prov, err := soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1")}, {Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2")},
	}})
	if err == nil {
		err = r.setUp(prov, rng)
	}
	if err != nil {
		r.fail("opening the runtimes: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), chaosPatience)
	defer cancel()
	r.ctx, r.enough = ctx, make(chan struct{})
	r.left.Store(1 + rng.Int64N(chaosSteps))
	r.start(rng)
	select {
	case <-r.enough:
	case <-ctx.Done():
		r.fail("after %v the goroutines still have to make %d calls, want 0", chaosPatience, r.left.Load())
	}
	if rng.IntN(3) == 0 {
		_ = prov.Remove([]string{"soft0", "soft1"}[rng.IntN(2)])
	}
	r.close(rng)
	r.await()
}

func (r *chaos) setUp(prov *soft.Provider, rng *rand.Rand) (err error) {
	cfg := Config{
		Provider: prov, Device: "soft1", Reactors: 1 + rng.IntN(2), NoCallerDriving: rng.IntN(4) == 0,
		OnPanic: func(*PanicError) { r.panicked.Add(1) },
		Conn:    Options{SendDepth: 1 + rng.IntN(8), RecvCredits: rng.IntN(2) * (1 + rng.IntN(8)), MessageSize: 256, PeerTimeout: time.Second},
	}
	if r.server, err = Open(cfg); err != nil {
		return err
	}
	cfg.Device = "soft0"
	if r.client, err = Open(cfg); err != nil {
		return err
	}
	if r.ln, err = r.server.Listen(":0"); err != nil {
		return err
	}
	if r.region, err = r.server.NewRegion(4096, allAccess|verbs.AccessMWBind); err != nil {
		return err
	}
	if r.far, err = r.region.Remote(0, 4096); err != nil {
		return err
	}
	r.near, err = r.client.NewRegion(4096, allAccess)
	return err
}

// close calls Close of both runtimes, one time each, in random order.
func (r *chaos) close(rng *rand.Rand) {
	both := []*Runtime{r.server, r.client}
	rng.Shuffle(2, func(i, j int) { both[i], both[j] = both[j], both[i] })
	for _, rt := range both {
		ctx := r.ctx
		if rng.IntN(4) == 0 {
			ctx = endedContext()
		}
		if err := rt.Close(ctx); err != nil {
			r.fail("closing %s: %v", rt.Device().Name, err)
		}
	}
}

// await waits until every goroutine has returned. Then it waits until every operation has
// ended and every panic was reported. If one of these two waits takes longer than chaosPatience, the
// test fails.
func (r *chaos) await() {
	back := make(chan struct{})
	go func() { r.users.Wait(); close(back) }()
	select {
	case <-back:
	case <-time.After(chaosPatience):
		stacks := make([]byte, 1<<20)
		r.fail("some calls have not returned after %v; the goroutines are:\n%s", chaosPatience, stacks[:stdruntime.Stack(stacks, true)])
		return
	}
	// Callbacks have goroutines of their own, and may still run after Close has returned.
	for end := time.Now().Add(chaosPatience); r.begun.Load() != r.ended.Load() || r.raised.Load() != r.panicked.Load(); {
		if time.Now().After(end) {
			r.fail("%d operations were accepted and %d ended; %d panics were raised and %d reported; want each pair equal",
				r.begun.Load(), r.ended.Load(), r.raised.Load(), r.panicked.Load())
			return
		}
		stdruntime.Gosched()
	}
}

// errChaos is the value of the panics that the user code of a round raises.
var errChaos = errors.New("user code of a chaos round panics")

// start starts the goroutines of the round. They use the runtimes until the runtimes are
// closed.
func (r *chaos) start(rng *rand.Rand) {
	for range 2 {
		r.repeat(r.accept)
	}
	for range 4 {
		r.repeat(r.dial)
	}
	if rng.IntN(2) == 0 {
		r.repeat(r.listen)
	}
}

// repeat starts a goroutine that calls fn until fn returns true. Each call of fn runs on a goroutine of
// its own, because user code in fn may call runtime.Goexit. A panic of fn is recovered, as net/http
// recovers the panic of a handler.
func (r *chaos) repeat(fn func(rng *rand.Rand) (over bool)) {
	r.users.Go(func() {
		for over := false; !over; {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				over = fn(r.random())
			}()
			<-done
		}
	})
}

// over reports whether a goroutine should stop. It returns true if err or the state of
// the round shows that a runtime is closed, that a device is removed, or that r.ctx has ended.
func (r *chaos) over(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, verbs.ErrDeviceRemoved) || r.server.gone.Load() || r.client.gone.Load() || r.ctx.Err() != nil
}

// rude plays user code that misbehaves: it sometimes panics or calls runtime.Goexit.
func (r *chaos) rude() {
	switch rand.IntN(64) {
	case 0:
		r.raised.Add(1)
		panic(errChaos)
	case 1:
		stdruntime.Goexit()
	}
}

// singleResult is the sink or the callback of one operation. A second result fails the test.
type singleResult struct {
	r     *chaos
	ended atomic.Bool
}

func (r *chaos) singleResult() *singleResult { return &singleResult{r: r} }

// Complete implements Sink.
func (o *singleResult) Complete(SinkContext, Result, error) { o.end() }

// Received implements MessageSink.
func (o *singleResult) Received(m Message, err error) {
	if err == nil {
		_ = m.Release()
	}
	o.end()
}

// end records that the operation has ended, and then calls o.r.rude.
func (o *singleResult) end() {
	if o.ended.Swap(true) {
		o.r.fail("a sink or callback was called a second time for one operation")
		return
	}
	o.r.ended.Add(1)
	o.r.rude()
}

// chaosContext is a context whose method Err may panic, as any user code may.
type chaosContext struct {
	context.Context
	r *chaos
}

// Err sometimes panics, on the goroutine that passed the context to the runtime.
func (c chaosContext) Err() error {
	if rand.IntN(8) == 0 {
		panic(errChaos)
	}
	return c.Context.Err()
}

// wait returns the context for one call: r.ctx, a context that ends within 200 µs, or a
// chaosContext that ends within 200 µs.
func (r *chaos) wait(rng *rand.Rand) (context.Context, context.CancelFunc) {
	switch rng.IntN(4) {
	case 0:
		return context.WithTimeout(r.ctx, time.Duration(rng.IntN(200))*time.Microsecond)
	case 1:
		ctx, stop := context.WithTimeout(r.ctx, time.Duration(rng.IntN(200))*time.Microsecond)
		return chaosContext{ctx, r}, stop
	}
	return r.ctx, func() {}
}

// accept accepts connections. For each connection it starts two goroutines: one runs
// r.serve, and one runs r.open.
func (r *chaos) accept(rng *rand.Rand) (over bool) {
	for {
		r.step()
		ctx, stop := r.wait(rng)
		c, err := r.ln.Accept(ctx)
		stop()
		if err == nil {
			r.users.Go(func() { r.serve(c) })
			r.users.Go(func() { r.open(c, r.random()) })
		} else if r.over(err) {
			return true
		}
	}
}

// serve answers messages until the connection ends.
func (r *chaos) serve(c *Conn) {
	for {
		m, err := c.RecvWait(r.ctx)
		if err != nil {
			c.Abort()
			return
		}
		if !m.HasImm {
			// The send has a time limit. Without a limit the two ends could wait for each other's
			// credits forever.
			ctx, stop := context.WithTimeout(r.ctx, time.Millisecond)
			if f, err := c.SendBytes(ctx, m.Data); err == nil {
				f.Discard()
			}
			stop()
		}
		_ = m.Release()
	}
}

// open binds and invalidates a window of the connection several times, and then revokes
// the window.
func (r *chaos) open(c *Conn, rng *rand.Rand) {
	w, err := c.NewWindow()
	if err != nil {
		return
	}
	for range rng.IntN(20) {
		_, f, err := w.Bind(r.ctx, r.region, 0, 64, verbs.AccessRemoteRead)
		if err != nil {
			break
		}
		if rng.IntN(2) == 0 {
			f.Discard()
		} else if _, err = f.Await(r.ctx); err != nil {
			break
		}
		if f, err = w.Invalidate(r.ctx); err == nil {
			_, _ = f.Await(r.ctx)
		}
	}
	if err := w.Revoke(r.ctx); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		r.fail("Window.Revoke: %v, want no error", err)
	}
}

// dial opens connections and uses each of them. Then it ends the connection in one of three ways, or
// leaves it open.
func (r *chaos) dial(rng *rand.Rand) (over bool) {
	for {
		r.step()
		ctx, stop := r.wait(rng)
		c, err := r.client.Dial(ctx, r.ln.Addr().String())
		stop()
		if r.over(err) {
			return true
		}
		if err != nil {
			continue
		}
		for range rng.IntN(60) {
			if err := r.use(c, rng); err != nil {
				break
			}
		}
		switch rng.IntN(4) {
		case 0:
			c.Abort()
		case 1:
			_ = c.Cancel(r.ctx)
			_ = c.Close(r.ctx)
		case 2:
			_ = c.Close(r.ctx)
		case 3: // leave the connection open: Runtime.Close closes it
		}
	}
}

// use starts one operation of a random kind, and consumes its result in a random way.
func (r *chaos) use(c *Conn, rng *rand.Rand) (err error) {
	r.step()
	s, err := r.near.Slice(rng.IntN(64)*64, 64)
	if err != nil {
		return err
	}
	ctx, stop := r.wait(rng)
	defer stop()
	var f Future
	switch rng.IntN(13) {
	case 0:
		f, err = c.Write(ctx, s, r.far)
	case 1:
		_, err = c.Do(ctx, new(WriteOp(s, r.far)))
	case 2:
		f, err = c.SendBytes(ctx, []byte("hello"))
	case 3:
		f, err = c.Start(ctx, new(WriteOp(s, r.far).Imm(7)))
	case 4:
		f, err = c.Batch().Start(ctx, new(ReadOp(s, r.far)))
	case 5:
		// The time limit is short, because there may be no message.
		short, stop := context.WithTimeout(ctx, time.Duration(rng.IntN(200))*time.Microsecond)
		defer stop()
		var m Message
		if m, err = c.RecvWait(short); err == nil {
			err = m.Release()
		}
	case 6:
		c.Recv().Discard()
	case 7:
		f, err = c.Start(ctx, new(FetchAndAddOp(r.far, 1)))
	case 8:
		_, err = c.DoAll(ctx, []Op{WriteOp(s, r.far), ReadOp(s, r.far), SendBytesOp([]byte("x"))}, nil)
	case 9, 10:
		err = r.startOne(ctx, c, WriteOp(s, r.far))
	case 11:
		stop := r.client.After(time.Duration(rng.IntN(1000))*time.Microsecond, r.rude)
		defer stop()
	case 12:
		r.begun.Add(1)
		c.RecvTo(r.singleResult())
	}
	if !f.Valid() {
		return passing(err)
	}
	switch o := r.singleResult(); rng.IntN(4) {
	case 0:
		f.Discard()
	case 1:
		_, _ = f.Await(ctx)
		f.Discard()
	case 2:
		r.begun.Add(1)
		f.Then(func(Result, error) { o.end() })
	case 3:
		r.begun.Add(1)
		r.client.Handle(f, func(Result, error) { o.end() })
	}
	return nil
}

// startOne starts op with a sink.
func (r *chaos) startOne(ctx context.Context, c *Conn, op Op) (err error) {
	accepted := false
	defer func() { // if a method of ctx panics in StartTo, the operation was not accepted
		if !accepted {
			r.begun.Add(-1)
		}
	}()
	r.begun.Add(1)
	err = c.StartTo(ctx, &op, r.singleResult(), 0)
	accepted = err == nil
	return err
}

// passing returns nil if err matches context.DeadlineExceeded, because then the
// connection still works. Otherwise it returns err.
func passing(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// listen opens and closes listeners. Meanwhile r.rude is called for each device event.
func (r *chaos) listen(*rand.Rand) (over bool) {
	stop := r.client.WatchDevice(func(DeviceEvent) { r.rude() })
	defer stop()
	for {
		r.step()
		ln, err := r.client.Listen(":0")
		if r.over(err) {
			return true
		}
		if err == nil {
			_ = ln.Close(r.ctx)
		}
	}
}
