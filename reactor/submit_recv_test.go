package reactor_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the pass that posts the queue's next send also posts all receives of PostRecvLater, in one
// list before the send. No earlier pass posts them.
func TestReceivesForLaterGoWithTheNextSend(t *testing.T) {
	a, b, h := hookedPair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	var lists []int
	h.set(func(inner verbs.Context, tn *verbs.IOBatch) error {
		for _, g := range tn.Recvs {
			lists = append(lists, g.Count)
		}
		if len(tn.Recvs) > 0 != (len(tn.Sends) > 0) {
			t.Errorf("a pass posted %d lists of receives and %d lists of sends, want both or neither", len(tn.Recvs), len(tn.Sends))
		}
		return inner.Execute(tn)
	})
	ended := 0
	later := func(n int) {
		for range n {
			_, sge := a.bytes(0, 8)
			must.Do(t, a.q.PostRecvLater(&reactor.Recv{Sink: called(func(reactor.Completion, error) { ended++ })}, []verbs.SGE{sge}))
		}
	}
	later(3)
	for a.r.Step() {
	}
	later(2)
	for a.r.Step() {
	}
	if len(lists) > 0 {
		t.Errorf("lists of %v receives were posted before the send, want none", lists)
	}
	s, p := a.write(b)
	f := must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
	for ctx := bounded(t); !f.Settled() && ctx.Err() == nil; { // a send on a device takes several passes
		a.r.Step()
	}
	if _, err := f.Await(bounded(t)); err != nil || !slices.Equal(lists, []int{5}) {
		t.Errorf("lists of %v receives were posted with the send, which ended with %v; want one list of 5, and success", lists, err)
	}
	later(1) // this receive ends with the queue
	a.release(t, reactor.ErrClosed)
	if ended != 6 {
		t.Errorf("%d receives had ended after the release of the queue, want 6", ended)
	}
}

// Rule: PostRecvLater may run concurrently with the release of its queue. Every accepted receive
// ends, and no slot is lost: a lost slot would keep the queue in quarantine forever.
func TestReceivesForLaterMeetTheEnd(t *testing.T) {
	const depth, rounds = 2000, 100
	l := newLone(t, reactor.Config{}, nil)
	for range rounds {
		e := &end{ctx: l.ctx, pd: l.pd, r: l.r}
		e.q = e.queue(t, reactor.QueueConfig{SendDepth: 1, RecvDepth: depth})
		var ended atomic.Int64
		begun, done := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for ; n < depth; n++ {
				if n == depth/50 {
					close(begun)
				}
				err := e.q.PostRecvLater(&reactor.Recv{Sink: called(func(reactor.Completion, error) { ended.Add(1) })}, nil)
				if errors.Is(err, reactor.ErrClosed) {
					break
				}
				try(t, err)
			}
			done <- n
		}()
		comes(t, "the first receives", begun)
		e.release(t, reactor.ErrClosed)
		n := comes(t, "the goroutine that posts receives", done)
		e.do(t, e.r.Flush) // refuses the receives that were pushed after Release
		if got := ended.Load(); got != int64(n) {
			t.Fatalf("%d receives ended, want all %d that PostRecvLater accepted", got, n)
		}
	}
	l.close(t)
}

// Rule: a queue with unposted receives of PostRecvLater can become idle. Idle causes a pass, which
// posts these receives. If the queue pair is in ERR, the device then flushes them.
func TestReceivesForLaterDoNotKeepAQueueFromIdling(t *testing.T) {
	onlySoft(t, "some devices do not flush receives that are posted in ERR until the queue pair is destroyed")
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	ended := make(chan error, 1)
	must.Do(t, a.q.PostRecvLater(&reactor.Recv{Sink: called(func(_ reactor.Completion, err error) { ended <- err })}, nil))
	a.close(t) // waits for the flush
	if err := comes(t, "the end of the receive", ended); err == nil {
		t.Error("a receive for which no message came succeeded, want an error")
	}
}
