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

// unplugRounds is how often the stress takes the device out.
const unplugRounds = 200

// Rule: whenever the device goes, nothing hangs and nothing is left: every
// operation ends, those of the lost device with ErrDeviceRemoved, the runtime
// closes, and the peer's side goes on with a new device.
func TestRemovalUnderLoad(t *testing.T) {
	seed := fromEnv(t, "VERBENA_REMOVAL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_REMOVAL_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	r := newPlugRig(t, Config{})
	if err := r.a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for round := range unplugRounds {
		unplugRound(t, r, rnd)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func unplugRound(t *testing.T, r *plugRig, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // the watchdog
	defer cancel()
	rt, err := Open(Config{Provider: r.p, Device: "a", NoCallerDriving: rnd.IntN(2) == 0, Reactors: 1 + rnd.IntN(2)})
	if err != nil {
		t.Fatal(err)
	}
	r.a = rt
	var work atomic.Int64
	var wg sync.WaitGroup
	load := func(what string, step func() error) {
		wg.Go(func() {
			for {
				err := step()
				if err == nil {
					work.Add(1)
					continue
				}
				if !errors.Is(err, verbs.ErrDeviceRemoved) {
					t.Errorf("%s ended with %v, want ErrDeviceRemoved", what, err)
				}
				return
			}
		})
	}
	var peers []*Conn
	for range 1 + rnd.IntN(3) {
		x, y := r.connect(r.a, r.b, Options{RecvCredits: 4, SendDepth: 4})
		peers = append(peers, y)
		load("sending", func() error {
			f, err := x.SendBytes(ctx, []byte("load"))
			if err == nil {
				_, err = f.Await(ctx)
			}
			return err
		})
		load("receiving", func() error {
			m, err := x.RecvWait(ctx)
			if err == nil {
				err = m.Release()
			}
			return err
		})
		wg.Go(func() { // the peer answers until it learns
			for {
				m, err := y.RecvWait(ctx)
				if err != nil {
					return
				}
				_ = m.Release()                                             // the connection may be gone
				if _, err := y.SendBytes(ctx, []byte("back")); err != nil { // settled with the connection
					return
				}
			}
		})
	}
	load("dialing", func() error {
		c, err := r.a.Dial(ctx, "10.1.0.2:1") // nobody listens
		if e := (*RejectError)(nil); errors.As(err, &e) {
			return nil
		}
		if err == nil {
			return c.Close(ctx)
		}
		return err
	})
	load("registering", func() error {
		reg, err := r.a.NewRegion(4096, verbs.AccessLocalWrite)
		if err == nil {
			err = reg.Close()
		}
		return err
	})
	for until := int64(rnd.IntN(300)); work.Load() < until && ctx.Err() == nil; {
		goruntime.Gosched()
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	for _, y := range peers {
		y.Abort() // or it would find out by its retries
	}
	wg.Wait()
	if err := rt.Close(ctx); err != nil {
		t.Errorf("closing the runtime of a removed device: %v", err)
	}
	for _, y := range peers {
		if err := y.Close(ctx); err != nil {
			t.Errorf("closing the peer's end: %v", err)
		}
	}
	if err := r.p.Restore("a"); err != nil {
		t.Fatal(err)
	}
}
