package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
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
