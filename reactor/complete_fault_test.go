package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// faulty is a layer between a reactor and its device. It injects the faults that the test
// sets.
type faulty struct {
	verbs.Context
	// If cutAt >= 0, the device accepts only the first cutAt requests of the next list of sends that
	// is longer than cutAt. Then cutAt is -1 again.
	cutAt atomic.Int64
	// If dead is set, every poll returns no completions and the errno EIO. If echo is set, a poll
	// returns each of its completions twice, unless the poll has no room for that.
	dead, echo atomic.Bool
	lists      atomic.Int64 // how many calls of Execute posted sends
}

func newFaulty(inner verbs.Context) *faulty {
	f := &faulty{Context: inner}
	f.cutAt.Store(-1)
	return f
}

func (f *faulty) Execute(t *verbs.IOBatch) error {
	if len(t.Sends) > 0 {
		f.lists.Add(1)
	}
	if at := f.cutAt.Load(); at >= 0 && len(t.Sends) > 0 && int(at) < t.Sends[0].Count {
		f.cutAt.Store(-1)
		return f.split(t, int(at))
	}
	if err := f.Context.Execute(t); err != nil {
		return err
	}
	for i := range t.Polls {
		p := &t.Polls[i]
		if f.dead.Load() {
			p.N, p.Errno = 0, syscall.EIO
		}
		if n := p.N; f.echo.Load() && 2*n <= len(p.WC) {
			copy(p.WC[n:], p.WC[:n])
			p.N = 2 * n
		}
	}
	return nil
}

// split executes t, but cuts the first list of sends at the index "at". The device gets only the requests
// before this index. split refuses the other requests of the list with ENOMEM.
func (f *faulty) split(t *verbs.IOBatch, at int) error {
	g := &t.Sends[0]
	whole := *g
	rest := t.Sends[1:]
	addr := g.Head
	var last *verbs.SendWR
	for range at {
		a, ok := mem.Find(addr, verbs.SizeofSendWR)
		if !ok {
			return fmt.Errorf("work request at 0x%x is in no arena", addr)
		}
		last, _ = mem.At[verbs.SendWR](a, addr)
		addr = last.Next
	}
	var next uint64
	if last != nil {
		next, last.Next = last.Next, 0
		g.Count = at
		if err := f.Context.Execute(t); err != nil {
			return err
		}
		last.Next = next
	} else {
		t.Sends = rest
		err := f.Context.Execute(t)
		t.Sends = append([]verbs.SendGroup{whole}, rest...)
		if err != nil {
			return err
		}
	}
	t.Sends[0].Count, t.Sends[0].Accepted, t.Sends[0].Errno = whole.Count, at, syscall.ENOMEM
	return nil
}

func faultyPair(t *testing.T, qc reactor.QueueConfig) (a, b *end, f *faulty) {
	a, b = pairOf(t, reactor.Config{}, qc, func(c verbs.Context) verbs.Context { f = newFaulty(c); return f })
	return a, b, f
}

// batch() submits n WRITEs while the turn is held, so that the next pass posts all of them.
func (e *end) batch(t *testing.T, peer *end, n int) []reactor.Future {
	t.Helper()
	return e.batchAfter(t, peer, n, func() {})
}

// batchAfter is like batch, but calls the function "before" first, while the turn is held. No pass runs
// between this call and the submission of the WRITEs. So if "before" injects a fault, the first pass with
// the fault is the pass that posts the WRITEs.
func (e *end) batchAfter(t *testing.T, peer *end, n int, before func()) []reactor.Future {
	t.Helper()
	addr, key := peer.remote(0)
	_, sge := e.bytes(0, 8)
	var fs []reactor.Future
	e.do(t, func() {
		before()
		for range n {
			f := must.Get(e.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
			fs = append(fs, f)
		}
	})
	return fs
}

// Rule: if a post returns bad_wr, the requests before bad_wr succeed, even if none of them is
// signaled. The request bad_wr and the requests after it fail with the errno. The queue does not
// fail.
func TestBadWRSplitsAtEveryPosition(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{SendDepth: 16})
	defer b.close(t)
	defer a.close(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	const n = 8
	for at := range n {
		f.cutAt.Store(int64(at))
		fs := a.batch(t, b, n)
		for i, fut := range fs {
			_, err := fut.Await(ctx)
			if i < at && err != nil {
				t.Fatalf("the device accepted the first %d requests: request %d ended with %v, want success", at, i, err)
			}
			var op *verbs.OpError
			if i >= at && (!errors.As(err, &op) || !errors.Is(err, syscall.ENOMEM) || op.Op != "ibv_post_send") {
				t.Fatalf("the device accepted the first %d requests: request %d ended with %v, want ENOMEM of ibv_post_send", at, i, err)
			}
		}
	}
	if st := a.r.Stats(); st.PostFailures != n || st.Outstanding != 0 {
		t.Fatalf("Stats counts %d refused lists and %d outstanding sends, want %d and 0", st.PostFailures, st.Outstanding, n)
	}
	for _, fut := range a.batch(t, b, n) {
		if _, err := fut.Await(ctx); err != nil {
			t.Fatalf("a WRITE after the refusals ended with %v, want success", err)
		}
	}
}

// Rule: if a poll returns a completion twice, the reactor drops the second copy and counts it as stale.
func TestStaleCompletionsAreDropped(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{SendDepth: 4})
	defer b.close(t)
	defer a.close(t)
	f.echo.Store(true)
	for range 100 {
		for _, fut := range a.batch(t, b, 4) {
			if _, err := fut.Await(context.Background()); err != nil {
				t.Fatalf("a WRITE ended with %v, want success", err)
			}
		}
	}
	f.echo.Store(false)
	if st := a.r.Stats(); st.Stale == 0 || st.Outstanding != 0 || st.Completions != 400 {
		t.Fatalf("Stats counts %d stale completions, %d outstanding sends and %d ended operations; want more than 0, 0 and 400", st.Stale, st.Outstanding, st.Completions)
	}
}

// Rule: an overrun of a completion queue fails the reactor's Queues with ErrOverrun. The operations
// of a failed Queue end when the Queue is released.
func TestOverrunFailsTheQueue(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{SendDepth: 4})
	defer b.close(t)
	failed := make(chan error, 1)
	a.do(t, func() { a.q.OnFail(func(err error) { failed <- err }) })
	fs := a.batchAfter(t, b, 3, func() { f.dead.Store(true) })
	if err := <-failed; !errors.Is(err, reactor.ErrOverrun) {
		t.Fatalf("the queue failed with %v, want ErrOverrun", err)
	}
	a.do(t, func() {
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(reactor.ErrOverrun))
	})
	for _, fut := range fs {
		if _, err := fut.Await(context.Background()); !errors.Is(err, reactor.ErrOverrun) {
			t.Fatalf("an operation of the failed queue ended with %v, want ErrOverrun", err)
		}
	}
	must.Do(t, a.r.Close(context.Background()))
	must.Do(t, a.mr.Close())
	must.Do(t, a.arena.Unmap())
	must.Do(t, a.pd.Close())
	must.Do(t, a.ctx.Close())
}

// Rule: canceling a wait does not end the operation's lease (its hold on the buffer). The lease
// ends exactly once: after the completion, and before the result is delivered.
func TestLeaseOutlivesACancelledWait(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	var l countingLease
	_, sge := a.bytes(0, 8)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	// The peer has posted no receive, so the send cannot complete yet.
	f := must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Lease: &l}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Block))(t)
	if _, err := f.Await(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("Await with an ended context returned %v, want context.Canceled", err)
	}
	if n := l.ended.Load(); n != 0 {
		t.Fatalf("the lease ended %d times while the SEND was outstanding, want 0", n)
	}
	_, in := b.bytes(0, 64)
	must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: make(inbox, 1)}, []verbs.SGE{in}, reactor.Block))
	if _, err := f.Await(context.Background()); err != nil {
		t.Fatalf("the SEND ended with %v, want success", err)
	}
	if n := l.ended.Load(); n != 1 {
		t.Fatalf("when the result was delivered, the lease had ended %d times, want once", n)
	}
}

type countingLease struct{ ended atomic.Int64 }

func (l *countingLease) End() { l.ended.Add(1) }

// Rule: if a device would refuse a request, Submit returns ErrRequest and does not post the
// request.
func TestBadRequestsAreRefusedAtOnce(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{MaxSGE: 2, Inline: 32})
	defer b.close(t)
	defer a.close(t)
	_, sge := a.bytes(0, 8)
	addr, key := b.remote(0)
	for name, c := range map[string]struct {
		s reactor.Send
		p reactor.Payload
	}{
		"too many elements": {reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{SGEs: []verbs.SGE{sge, sge, sge}}},
		"inline too large":  {reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{Inline: make([]byte, a.q.Inline()+1)}},
		"inline READ":       {reactor.Send{Opcode: verbs.WRRDMARead, Remote: addr, RKey: key}, reactor.Payload{Inline: make([]byte, 1)}},
		"misaligned atomic": {reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr + 4, RKey: key}, reactor.Payload{}},
		"message too large": {reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key},
			reactor.Payload{SGEs: []verbs.SGE{{Addr: sge.Addr, Length: 1<<31 + 1}}}},
		"BIND_MW without a window": {reactor.Send{Opcode: verbs.WRBindMW}, reactor.Payload{}},
	} {
		if _, err := a.q.Submit(context.Background(), &c.s, &c.p, reactor.NonBlock); !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("%s: Submit returned %v, want ErrRequest", name, err)
		}
	}
	if st := a.r.Stats(); st.WorkRequests != 0 {
		t.Fatalf("%d requests were posted, want 0", st.WorkRequests)
	}
}

// Rule: a wait for a slot ends with the context's error when the context ends. If the queue fails,
// the wait ends with the queue's error.
func TestWaitingForRoom(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1})
	defer b.close(t)
	defer a.close(t)
	_, sge := a.bytes(0, 8)
	s, p := reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{SGEs: []verbs.SGE{sge}}
	// The peer has posted no receive, so this send stays outstanding.
	first, err := a.q.Submit(context.Background(), &s, &p, reactor.Block)
	must.Do(t, err)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := a.q.Submit(short, &s, &p, reactor.Block); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Submit to a full queue returned %v, want context.DeadlineExceeded", err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := a.q.Submit(context.Background(), &s, &p, reactor.Block)
		refused <- err
	}()
	boom := errors.New("boom")
	a.q.Fail(boom)
	if err := <-refused; !errors.Is(err, boom) || !errors.Is(err, reactor.ErrQueueFailed) {
		t.Fatalf("Submit to the full queue returned %v when the queue failed, want ErrQueueFailed that wraps the cause", err)
	}
	first.Discard()
}
