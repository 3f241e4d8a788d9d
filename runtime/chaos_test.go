package runtime

import (
	"context"
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
	// chaosRounds is how many rounds `make test` runs; `make stress` sets
	// VERBENA_CHAOS_ROUNDS to ten thousand.
	chaosRounds = 100
	// chaosAtOnce is how many rounds run side by side: most of a round waits.
	chaosAtOnce = 4
	// chaosSteps is before how many calls, at most, the end of a round begins.
	chaosSteps = 2000
	// chaosPatience is what no wait of a round that works comes near to.
	chaosPatience = 60 * time.Second
)

// Rule: two runtimes may be closed at any moment, in either order, their device may go, and
// user code may panic or end its goroutine, whatever goroutines are doing with them: one
// Close each is enough, every call returns, every operation ends once, every panic is told
// once, and nothing is left behind.
//
// What a round does is replayed by VERBENA_CHAOS_SEED; how its goroutines meet is not.
func TestChaosAtTheEnd(t *testing.T) {
	notOnDevice(t, "its devices are taken away")
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
	t.Logf("%d operations, %d panics", ops.Load(), panics.Load())
}

// chaos is one round: two runtimes, goroutines that use them (chaos_load_test.go), and the
// end.
type chaos struct {
	t       *testing.T
	seed, n uint64
	names   atomic.Uint64 // of the generators that were made

	server, client *Runtime
	ln             *Listener
	region, near   *Region
	far            Remote
	ctx            context.Context // ends when all else has
	users          sync.WaitGroup
	left           atomic.Int64  // calls until the end begins
	enough         chan struct{} // closed then

	begun, ended     atomic.Int64 // operations that were accepted with a sink or a callback, and their results
	raised, panicked atomic.Int64 // panics of user code, and those that Config.OnPanic had
}

// fail says what rule was broken. Any goroutine.
func (r *chaos) fail(format string, args ...any) {
	r.t.Errorf("seed %d, round %d: %s", r.seed, r.n, fmt.Sprintf(format, args...))
}

// step counts a call.
func (r *chaos) step() {
	if r.left.Add(-1) == 0 {
		close(r.enough)
	}
}

// random is a generator for one goroutine.
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
		r.fail("%v", err)
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
		r.fail("the goroutines do not come to %d calls", chaosSteps)
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
		Conn:    Options{SendDepth: 1 + rng.IntN(8), RecvCredits: 1 + rng.IntN(8), MessageSize: 256, PeerTimeout: time.Second},
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

// close closes both runtimes, once.
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

// await waits until every goroutine is back and every result was told.
func (r *chaos) await() {
	back := make(chan struct{})
	go func() { r.users.Wait(); close(back) }()
	select {
	case <-back:
	case <-time.After(chaosPatience):
		stacks := make([]byte, 1<<20)
		r.fail("calls hang:\n%s", stacks[:stdruntime.Stack(stacks, true)])
		return
	}
	for end := time.Now().Add(chaosPatience); r.begun.Load() != r.ended.Load() || r.raised.Load() != r.panicked.Load(); {
		if time.Now().After(end) { // callbacks after Close have goroutines of their own
			r.fail("%d operations were accepted, %d ended; %d panics, %d were told", r.begun.Load(), r.ended.Load(), r.raised.Load(), r.panicked.Load())
			return
		}
		stdruntime.Gosched()
	}
}
