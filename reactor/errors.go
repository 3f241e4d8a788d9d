package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/verbs"
)

// The errors of the reactor. The constructor (package sentinel) of an error says when the same call
// may succeed: Later, Reconnect (only on a new connection) or Never.
var (
	// ErrConfig reports a configuration that is invalid, or that this device does not support.
	ErrConfig    = sentinel.Never("verbena: bad configuration")
	ErrClosed    = verbs.ErrClosed
	ErrQueueFull = sentinel.Later("reactor: send queue full")
	ErrRecvFull  = sentinel.Later("reactor: receive queue full")
	// ErrQueueFailed is the error of requests to a failed queue. The returned error also wraps the
	// cause of the failure.
	ErrQueueFailed = sentinel.Reconnect("reactor: queue failed")
	ErrTooMany     = sentinel.Later("reactor: no room for another queue")
	ErrOverrun     = sentinel.Reconnect("reactor: completion queue overrun")
	// ErrUnanswered reports that the device completed an atomic with success, but did not deliver
	// the peer's answer. The peer may or may not have executed the atomic. See
	// complete_unanswered.go.
	ErrUnanswered = sentinel.Never("reactor: the device completed an atomic without its answer")
	// ErrRequest reports a request that the device would refuse.
	ErrRequest = verbs.ErrInvalid
	// ErrNilContext is the error of a call with a nil context. The call has no other effect, with
	// one exception: TransferWait ends Transfer.Lease, as it does whenever it submits nothing.
	ErrNilContext = futures.ErrNilContext
)
