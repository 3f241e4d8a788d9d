package reactor_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: receives for later keep no queue from becoming idle: when its owner asks for that,
// at the queue's end, they go to the device and are flushed with the others.
func TestReceivesForLaterDoNotKeepAQueueFromIdling(t *testing.T) {
	onlySoft(t, "a device may flush what is posted in ERR only with the queue pair")
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	ended := make(chan error, 1)
	check(t, a.q.PostRecvLater(&reactor.Recv{Sink: called(func(_ reactor.Completion, err error) { ended <- err })}, nil))
	a.close(t) // waits for the flush
	if err := comes(t, "the end of the receive", ended); err == nil {
		t.Error("a receive that nobody sent to has succeeded")
	}
}

// Rule: receives that were not posted when their queue failed are not posted any more, and
// end with its cause: the queue is idle at once, whatever the device does with them.
func TestReceivesForLaterEndWithAFailedQueue(t *testing.T) {
	a, b, h := hookedPair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	h.set(func(inner verbs.Context, tn *verbs.Turn) error {
		if len(tn.Recvs) > 0 {
			t.Error("a receive of a failed queue was posted")
		}
		return inner.Turn(tn)
	})
	ended, cause := make(chan error, 1), errors.New("the owner's")
	check(t, a.q.PostRecvLater(&reactor.Recv{Sink: called(func(_ reactor.Completion, err error) { ended <- err })}, nil))
	a.q.Fail(cause)
	idle := make(chan struct{})
	a.do(t, func() { a.q.Idle(func() { close(idle) }) })
	comes(t, "the queue's idleness", idle)
	if err := comes(t, "the end of the receive", ended); !errors.Is(err, cause) {
		t.Errorf("the receive ended with %v, want the queue's cause", err)
	}
	a.close(t)
}
