package reactor

import "errors"

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
	ErrRequest     = errors.New("reactor: bad request")
)
