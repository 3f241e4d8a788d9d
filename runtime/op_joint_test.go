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

// Rule: if operations of DoAll fail, DoAll returns the index and the error of the first of them.
// The rule holds for an operation that is refused at once. It also holds for one that fails later,
// together with all operations behind it.
func TestDoWaitStopsAtAFailure(t *testing.T) {
	const n, at = 20, 11
	for name, c := range map[string]struct {
		spoil func(op *Op)
		want  error
	}{
		"refused at once":   {func(op *Op) { op.remote.Length = 4 }, ErrRemoteRange},
		"fails on the way":  {func(op *Op) { op.remote.RKey ^= 0x5500 }, verbs.StatusError(verbs.WCRemAccessErr)},
		"no such operation": {func(op *Op) { *op = Op{} }, reactor.ErrRequest},
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
				t.Errorf("%d succeeded, then %v; want %d and %v", got, err, at, c.want)
			}
			for i, r := range rs {
				if ok := r.Bytes == 8; ok != (i < at) {
					t.Errorf("operation %d: a result of %d bytes", i, r.Bytes)
				}
			}
			if n := own.lease.word.Load() & leaseCountMask; n != 0 {
				t.Errorf("%d operations are in flight on the memory", n)
			}
			c.spoil(&ops[0])
			if got, err := a.DoAll(testContext(t), ops, nil); got != 0 || err == nil {
				t.Errorf("the first: %d succeeded, then %v", got, err)
			}
		})
	}
	a, _ := connected(t, Config{})
	if n, err := a.DoAll(t.Context(), nil, nil); n != 0 || err != nil {
		t.Errorf("no operations: %d, %v", n, err)
	}
	if n, err := a.DoAll(t.Context(), make([]Op, 2), make([]Result, 1)); n != 0 || !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("too few results: %d, %v", n, err)
	}
}

// Rule: if the context of a DoAll has ended, results of that call never appear in another DoAll.
// Each result of a FETCH_ADD is delivered at most one time.
func TestDoWaitIsGivenUp(t *testing.T) {
	const goroutines, rounds, most = 6, 300, 12
	a, b := connected(t, Config{Conn: Options{SendDepth: 16}})
	far := must.Get(b.rt.NewRegion(8*goroutines, allAccess))(t)
	var all sync.WaitGroup
	for g := range goroutines {
		word := must.Get(far.Remote(8*g, 8))(t)
		rnd := rand.New(rand.NewPCG(uint64(g), 1))
		all.Go(func() {
			next := uint64(0) // the least value that the word can have
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
						t.Errorf("goroutine %d: %v", g, err)
						return
					}
					continue
				}
				if n != len(ops) || rs[0].Value < next {
					t.Errorf("goroutine %d: %d of %d, from %d; want from %d on", g, n, len(ops), rs[0].Value, next)
				}
				// The results are consecutive numbers, because only this goroutine adds to the
				// word. The operations of earlier calls were executed before.
				for i := range rs {
					if rs[i].Value != rs[0].Value+uint64(i) {
						t.Errorf("goroutine %d: answer %d is %d, the first was %d", g, i, rs[i].Value, rs[0].Value)
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

// Rule: when DoAll has no credit for a message, it posts the messages before that one. Only these
// messages can bring credits back. (In an older version DoAll waited for one second each time all
// credits were used up.)
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
		t.Errorf("%d succeeded: %v", n, err)
	}
	if looks := a.rt.Stats().Rechecks - began; looks > 1 {
		t.Errorf("%d rounds of the watch passed: it was they who had the messages posted", looks)
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
}
