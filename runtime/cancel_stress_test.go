package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: whoever posts, closes or dies while a connection is cancelled, everything ends
// once, and the memory comes home.
func TestStressCancel(t *testing.T) { onBeds(t, stressCancel) }

func stressCancel(t *testing.T, d bed) {
	seed := fromEnv(t, "VERBENA_CANCEL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_CANCEL_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	rounds := int(fromEnv(t, "VERBENA_STRESS_OPS", 0)/100_000) + 30
	server, client := d.open(t, Config{Reactors: 2}, 1), d.open(t, Config{Reactors: 2}, 0)
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	far, err := server.NewRegion(4096, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := far.Remote(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for round := 0; round < rounds && !t.Failed(); round++ {
		cancelRound(t, client, ln, remote, rnd)
	}
}

func cancelRound(t *testing.T, client *Runtime, ln *Listener, remote Remote, rnd *rand.Rand) {
	ctx := testContext(t)
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	a, err := client.DialOptions(ctx, ln.Addr().String(), Options{SendDepth: 1 + rnd.IntN(8)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := seat.Await(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.NewRegion(4096, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	local, err := r.Slice(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	var ended, started atomic.Int64
	var posters, enders sync.WaitGroup
	sink := sinkFunc(func(Result, error) { ended.Add(1) })
	for i := range 3 {
		posters.Go(func() {
			for {
				var err error
				switch i {
				case 0:
					op := ReadOp(local, remote)
					err = a.StartTo(ctx, &op, sink, 0)
				case 1:
					_, err = a.Do(ctx, new(WriteOp(local, remote)))
				default:
					var f Future
					if f, err = a.Batch().Start(ctx, new(WriteOp(local, remote))); err == nil {
						_, err = f.Await(ctx)
					}
				}
				if err != nil {
					if errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("poster %d hangs", i)
					}
					return
				}
				if i == 0 {
					started.Add(1)
				}
			}
		})
	}
	for until := int64(rnd.IntN(60)); ended.Load() < until && a.Err() == nil && ctx.Err() == nil; {
		goruntime.Gosched()
	}
	cancel := func() {
		if err := a.Cancel(ctx); err != nil {
			t.Errorf("cancelling: %v", err)
		}
	}
	enders.Go(cancel)
	if rnd.IntN(2) == 0 {
		enders.Go(cancel)
	}
	switch rnd.IntN(4) {
	case 0:
		enders.Go(func() {
			if err := a.Close(ctx); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
	case 1:
		enders.Go(b.Abort)
	case 2:
		enders.Go(a.Abort)
	}
	enders.Wait()
	posters.Wait()
	cancel() // what was between its checks and the queue is over when this one returns, or refused
	for ended.Load() < started.Load() && ctx.Err() == nil {
		goruntime.Gosched()
	}
	if n, want := ended.Load(), started.Load(); n != want {
		t.Errorf("%d completions of %d operations", n, want)
	}
	if n := local.lease.word.Load() & leaseCountMask; n != 0 {
		t.Errorf("%d operations have the memory after all have ended", n)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region: %v", err)
	}
	for _, c := range []*Conn{a, b} {
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
}

// sinkFunc is a function as a sink.
type sinkFunc func(Result, error)

func (f sinkFunc) Complete(_ Turn, r Result, err error) { f(r, err) }
