package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/verbs"
)

// The sentinels of this room.
var (
	// ErrConfig is a configuration that cannot be, by itself or for this device.
	ErrConfig    = sentinel.Never("verbena: bad configuration")
	ErrClosed    = verbs.ErrClosed
	ErrQueueFull = sentinel.Later("reactor: send queue full")
	ErrRecvFull  = sentinel.Later("reactor: receive queue full")
	// ErrQueueFailed is a queue that takes no more; it comes with the cause.
	ErrQueueFailed = sentinel.Reconnect("reactor: queue failed")
	ErrTooMany     = sentinel.Later("reactor: no room for another queue")
	ErrOverrun     = sentinel.Reconnect("reactor: completion queue overrun")
	// ErrUnanswered is an atomic that the device completed with success and without
	// its answer: whether it was executed is not known. See complete_unanswered.go.
	ErrUnanswered = sentinel.Never("reactor: the device completed an atomic without its answer")
	// ErrRequest is a request that the device would refuse.
	ErrRequest = verbs.ErrInvalid
	// ErrNilContext is what everything that takes a context answers for a nil one,
	// before it does anything.
	ErrNilContext = futures.ErrNilContext
)
