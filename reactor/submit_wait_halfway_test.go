package reactor_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: TransferWait posts its request after all requests that were submitted earlier. This holds
// even if the queue is not on the ready list, because a submitter was preempted just before it
// pushed the queue there.
func TestALoneTransferKeepsItsPlaceWhileTheQueueIsBeingListed(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	write, read := a.transfer(b, 0), a.transfer(b, 0)
	read.Opcode = verbs.WRRDMARead
	back, sge := a.bytes(64, 8)
	read.Local = sge
	mine, _ := a.bytes(0, 8)
	mine[0], back[0] = 1, 2

	goOn := a.q.ListingUnderWay()
	before := must.Get(a.q.Transfer(ctx, &write, reactor.NoWakeup))(t)
	var lone reactor.Future
	a.do(t, func() { lone = a.q.TransferHolding(&read) })
	await(t, lone, nil)
	if back[0] != 1 {
		t.Errorf("the READ returned %d, want 1, the value of the WRITE before it", back[0])
	}
	goOn()
	a.r.Wake()
	await(t, before, nil)
}

// Rule: receives of PostRecvLater are posted in the same pass as the next send of their queue,
// even if TransferWait posts this send.
func TestReceivesForLaterGoWithALoneTransfer(t *testing.T) {
	const rounds = 8
	a, b, h := hookedPair(t, reactor.Config{}, reactor.QueueConfig{RecvDepth: rounds})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	passes := 0 // how many passes had sends; only the holder uses it
	h.set(func(inner verbs.Context, tn *verbs.IOBatch) error {
		if len(tn.Sends) > 0 {
			passes++
		}
		if len(tn.Sends) != len(tn.Recvs) {
			t.Errorf("a pass has %d lists of receives and %d lists of sends, want equal numbers", len(tn.Recvs), len(tn.Sends))
		}
		return inner.Execute(tn)
	})
	one := a.transfer(b, 0)
	for range rounds {
		must.Do(t, a.q.PostRecvLater(&reactor.Recv{Sink: called(func(reactor.Completion, error) {})}, nil))
		must.Get(a.q.TransferWait(ctx, &one))(t)
	}
	a.do(t, func() {
		if passes != rounds {
			t.Errorf("%d passes had sends, want %d", passes, rounds)
		}
		h.set(func(inner verbs.Context, tn *verbs.IOBatch) error { return inner.Execute(tn) })
	})
}

// Rule: if the turn is free, TransferNow has posted its request when it returns. If another goroutine
// holds the turn, TransferNow does not wait for it, and the holder posts the request. A full queue refuses.
func TestTransferNowPosts(t *testing.T) {
	const depth = 2
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	ended := make(tally, depth)
	one := a.transfer(b, 0)
	one.Sink = ended
	posted := func() uint64 { return a.r.Stats().WorkRequests }
	was := posted()
	must.Do(t, a.q.TransferNow(&one))
	if n := posted() - was; n != 1 {
		t.Errorf("the device has %d requests when TransferNow returns, want 1", n)
	}
	must.Do(t, <-ended)
	returned := make(chan error)
	a.do(t, func() { // holds the turn
		go func() {
			var err error
			for range depth {
				err = errors.Join(err, a.q.TransferNow(&one))
			}
			if full := a.q.TransferNow(&one); !errors.Is(full, reactor.ErrQueueFull) {
				t.Errorf("TransferNow of a full queue returned %v, want ErrQueueFull", full)
			}
			returned <- err
		}()
		must.Do(t, <-returned)
	})
	for range depth {
		must.Do(t, <-ended)
	}
}
