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

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// unplugRounds is how many times TestRemovalUnderLoad removes the device.
const unplugRounds = 200

// Rule: if the device is removed under load, all operations of its runtime end with
// ErrDeviceRemoved, and the runtime can be closed. After the device is restored, the peer's runtime
// accepts new connections from the device.
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
			t.Fatalf("round %d of %d failed", round, unplugRounds)
		}
	}
}

func unplugRound(t *testing.T, r *plugRig, rnd *rand.Rand) {
	// ctx limits the whole round.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt := must.Get(Open(Config{Provider: r.p, Device: "a", NoCallerDriving: rnd.IntN(2) == 0, Reactors: 1 + rnd.IntN(2)}))(t)
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
		wg.Go(func() { // the peer answers until its end of the connection fails
			for {
				m, err := y.RecvWait(ctx)
				if err != nil {
					return
				}
				// Ignore the error: the connection may have ended.
				_ = m.Release()
				// Nothing reads the future. It is settled when the connection ends, at the latest.
				if _, err := y.SendBytes(ctx, []byte("back")); err != nil {
					return
				}
			}
		})
	}
	load("dialing", func() error {
		c, err := r.a.Dial(ctx, "10.1.0.2:1") // no listener has this port
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
		y.Abort() // otherwise the peer's end would fail only when its retries are used up
	}
	wg.Wait()
	if err := rt.Close(ctx); err != nil {
		t.Errorf("closing the runtime of a removed device: %v, want nil", err)
	}
	for _, y := range peers {
		if err := y.Close(ctx); err != nil {
			t.Errorf("closing the peer's end of a connection: %v, want nil", err)
		}
	}
	if err := r.p.Restore("a"); err != nil {
		t.Fatal(err)
	}
}

// Rule: if the device is removed, the outstanding operations of a connection end with
// ErrDeviceRemoved, and Close returns nil. This holds even if the connection is being closed, or
// fails for another reason before the runtime notices the removal.
func TestRemovalMeetsAnEndUnderWay(t *testing.T) {
	for name, begin := range map[string]func(c *Conn){
		"closing": func(c *Conn) { c.end(false) },
		"failing": func(c *Conn) { c.fail(errors.New("boom")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlugRig(t, Config{NoCallerDriving: true})
			ctx := testContext(t)
			c, _ := r.connect(r.a, r.b, Options{Raw: true})
			f, err := c.SendBytes(ctx, []byte("posted"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.sh.r.Do(ctx, c.sh.r.Flush); err != nil {
				t.Fatal(err)
			}
			var rerr error
			if err := c.sh.r.Do(ctx, func() {
				if name == "closing" {
					begin(c)
					return
				}
				rerr = r.p.Remove("a") // the runtime handles the removal after this function has returned
				begin(c)
			}); err != nil {
				t.Fatal(err)
			}
			if name == "closing" {
				// The empty Do returns after the deferred part of c.end has run. Then the closing
				// connection waits for the outstanding send.
				rerr = errors.Join(c.sh.r.Do(ctx, func() {}), r.p.Remove("a"))
			}
			if rerr != nil {
				t.Fatal(rerr)
			}
			_, err = f.Await(ctx)
			lost(t, "the send", err)
			if err := c.Close(ctx); err != nil {
				t.Errorf("closing the connection: %v, want nil", err)
			}
		})
	}
}

// Rule: if the device is removed while a SharedRecv or a PacketConn is being closed, the operations of
// the SharedRecv or PacketConn end at once with ErrDeviceRemoved. Close does not wait for a flush,
// because a removed device flushes nothing.
func TestRemovalMeetsAClose(t *testing.T) {
	r := newPlugRig(t, Config{NoCallerDriving: true})
	ctx := testContext(t)
	s, err := r.a.NewSharedRecv(4, 1)
	if err != nil {
		t.Fatal(err)
	}
	taken := must.Get(s.PostRecv(bufferOf(t, r.a, make([]byte, 64)).Slice()))(t)
	p := must.Get(r.a.ListenPacket(":0", Options{}))(t)
	var errs []error
	if err := p.sh.r.Do(ctx, func() {
		p.setCause(ErrConnClosed)
		// The runtime does not notice the removal before p.fail is called below, because this function
		// holds the turn.
		errs = append(errs, r.p.Remove("a"))
		p.end()
		if p.destroyed {
			t.Error("the PacketConn was destroyed at once, but the test needs a PacketConn that waits for a flush")
		}
		p.fail(verbs.ErrDeviceRemoved)
		if !p.destroyed {
			t.Error("after the removal of the device, the PacketConn still waits for a flush")
		}
		errs = append(errs, s.end()) // as SharedRecv.Close does, if it runs before shard.failRemoved fails the connections
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(append(errs, p.Close(ctx))...); err != nil {
		t.Fatal(err)
	}
	_, err = taken.Await(ctx)
	lost(t, "the shared receive", err)
}
