package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if operations of DoAll fail, DoAll returns the lowest index of a failed operation, and its
// error. This holds if an operation cannot be started. It also holds if an operation is started and
// fails later, which makes all operations after it fail.
func TestDoWaitStopsAtAFailure(t *testing.T) {
	const n, at = 20, 11
	for name, c := range map[string]struct {
		spoil func(op *Op)
		want  error
	}{
		"the remote memory is too short": {func(op *Op) { op.remote.Length = 4 }, ErrRemoteRange},
		"the rkey is invalid":            {func(op *Op) { op.remote.RKey ^= 0x5500 }, verbs.StatusError(verbs.WCRemAccessErr)},
		"the Op is zero":                 {func(op *Op) { *op = Op{} }, reactor.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			a, own, far := batchBed(t, 8)
			ops, rs := make([]Op, n), make([]Result, n)
			for i := range ops {
				ops[i] = WriteOp(must.Get(own.Slice(0, 8))(t), must.Get(far.Remote(0, 8))(t))
			}
			c.spoil(&ops[at])
			got, err := a.DoAll(testContext(t), ops, rs)
			if got != at || !errors.Is(err, c.want) {
				t.Errorf("DoAll returned %d, %v; want %d, %v", got, err, at, c.want)
			}
			for i, r := range rs {
				if ok := r.Bytes == 8; ok != (i < at) {
					t.Errorf("the result of operation %d has %d bytes, want 8 bytes only for the operations before operation %d, which failed", i, r.Bytes, at)
				}
			}
			if n := own.lease.word.Load() & leaseCountMask; n != 0 {
				t.Errorf("after DoAll %d operations have a lease on the memory, want 0", n)
			}
			c.spoil(&ops[0])
			if got, err := a.DoAll(testContext(t), ops, nil); got != 0 || err == nil {
				t.Errorf("DoAll with an invalid first operation returned %d, %v; want 0 and an error", got, err)
			}
		})
	}
	a, _ := connected(t, Config{})
	if n, err := a.DoAll(t.Context(), nil, nil); n != 0 || err != nil {
		t.Errorf("DoAll of no operations returned %d, %v; want 0, nil", n, err)
	}
	if n, err := a.DoAll(t.Context(), make([]Op, 2), make([]Result, 1)); n != 0 || !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("DoAll of 2 operations with room for 1 result returned %d, %v; want 0, %v", n, err, reactor.ErrRequest)
	}
}

// Rule: if the context of a DoAll ends before all operations of this DoAll have ended, no other DoAll
// returns results of these operations. Each result of a FETCH_ADD is delivered at most one time.
func TestDoWaitIsGivenUp(t *testing.T) {
	const goroutines, rounds, most = 6, 300, 12
	a, b := connected(t, Config{Conn: Options{SendDepth: 16}})
	far := must.Get(b.rt.NewRegion(8*goroutines, allAccess))(t)
	var all sync.WaitGroup
	for g := range goroutines {
		word := must.Get(far.Remote(8*g, 8))(t)
		rnd := rand.New(rand.NewPCG(uint64(g), 1))
		all.Go(func() {
			next := uint64(0) // the lowest value that the word can have now
			for range rounds {
				ops := make([]Op, 1+rnd.IntN(most))
				for i := range ops {
					ops[i] = FetchAndAddOp(word, 1)
				}
				rs := make([]Result, len(ops))
				ctx, cancel := testContext(t), context.CancelFunc(func() {})
				if rnd.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(50))*time.Microsecond)
				}
				n, err := a.DoAll(ctx, ops, rs)
				cancel()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("goroutine %d: DoAll returned %v, want no error or context.DeadlineExceeded", g, err)
						return
					}
					continue
				}
				if n != len(ops) || rs[0].Value < next {
					t.Errorf("goroutine %d: %d operations succeeded, want %d; the first operation found the value %d, want %d or more",
						g, n, len(ops), rs[0].Value, next)
				}
				// The results must be consecutive numbers: only this goroutine adds to the word, and the
				// device executes the operations of earlier calls before those of this call.
				for i := range rs {
					if rs[i].Value != rs[0].Value+uint64(i) {
						t.Errorf("goroutine %d: operation %d found the value %d, want %d", g, i, rs[i].Value, rs[0].Value+uint64(i))
					}
				}
				next = rs[0].Value + uint64(n)
			}
		})
	}
	all.Wait()
	if err := a.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	mustClose(t, far)
}

// Rule: while DoAll waits for a credit, the reactor posts the earlier messages of this DoAll. The peer
// returns credits only after it has received these messages. If the reactor did not post them, each wait
// would last until the next recheck (a pass that a timer starts once a second).
func TestDoWaitOfMoreThanThePeerHasReceives(t *testing.T) {
	const n = 32
	a, b := connected(t, Config{Conn: Options{RecvCredits: 4}})
	ctx := testContext(t)
	received := make(chan error, 1)
	go func() {
		for range n {
			m, err := b.RecvWait(ctx)
			if err == nil {
				err = m.Release()
			}
			if err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = SendBytesOp([]byte("x"))
	}
	began := a.rt.Stats().Rechecks
	if n, err := a.DoAll(ctx, ops, nil); n != len(ops) || err != nil {
		t.Errorf("DoAll returned %d, %v; want %d, nil", n, err, len(ops))
	}
	if rechecks := a.rt.Stats().Rechecks - began; rechecks > 1 {
		t.Errorf("%d rechecks ran during DoAll, want at most 1; more mean that DoAll waited for a credit while earlier messages were not posted", rechecks)
	}
	if err := <-received; err != nil {
		t.Errorf("receiving the messages: %v", err)
	}
}
