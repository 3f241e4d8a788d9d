package reactor

import (
	"errors"

	"github.com/verbena-rdma/verbena/futures"
)

// The sentinels of this room.
var (
	ErrConfig      = errors.New("reactor: bad configuration")
	ErrClosed      = errors.New("reactor: closed")
	ErrQueueFull   = errors.New("reactor: send queue full")
	ErrRecvFull    = errors.New("reactor: receive queue full")
	ErrQueueClosed = errors.New("reactor: queue closed")
	ErrQueueFailed = errors.New("reactor: queue failed")
	ErrTooMany     = errors.New("reactor: no room for another queue")
	ErrOverrun     = errors.New("reactor: completion queue overrun")
	// ErrUnanswered is an atomic that the device completed with success and without
	// its answer: whether it was executed is not known. See unanswered.go.
	ErrUnanswered = errors.New("reactor: the device completed an atomic without its answer")
	ErrRequest    = errors.New("reactor: bad request")
	// ErrNilContext is what everything that takes a context answers for a nil one,
	// before it does anything.
	ErrNilContext = futures.ErrNilContext
)
