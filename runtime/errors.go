package runtime

import (
	"errors"
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// This file has the errors of this package and of the packages that it uses, grouped by the action
// that they call for. Functions return these errors wrapped, with the offending values, so test for
// them with errors.Is. [RetryOf] returns RetryLater for the first group, and RetryReconnect for the
// second group. The package documentation (doc.go) lists what each result of an operation says
// about the peer.

// The same call may succeed later: a resource is in use, or an answer took too long.
var (
	ErrQueueFull   = reactor.ErrQueueFull                                                  // from TryStartTo and StartFromSink: Options.SendDepth operations are outstanding
	ErrNoCredit    = sentinel.Later("runtime: the peer has no receive free", ErrQueueFull) // from TryStartTo and StartFromSink
	ErrRecvFull    = reactor.ErrRecvFull                                                   // Options.RecvCredits receives are posted
	ErrTooMany     = reactor.ErrTooMany                                                    // too many connections on one reactor
	ErrBusy        = verbs.ErrBusy                                                         // the object to close is in use
	ErrMemlock     = verbs.ErrMemlock                                                      // the process's limit on locked memory is reached; *MemlockError
	ErrNoRequest   = sentinel.Later("runtime: no connection request is waiting")           // from TryPrepareAccept
	ErrNoGID       = verbs.ErrNoGID                                                        // the port has no address, or is down
	ErrUnreachable = sentinel.Later("runtime: peer unreachable")
	// ErrConnectTimeout and ErrReactorBusy match os.ErrDeadlineExceeded. If a function returns
	// ErrReactorBusy, the work that it started goes on: call the function again to wait for the end
	// of this work.
	ErrConnectTimeout = sentinel.Later("runtime: connecting took too long", os.ErrDeadlineExceeded)
	ErrReactorBusy    = sentinel.Later("runtime: the reactor did not respond", os.ErrDeadlineExceeded)
)

// The connection ended, but this program did not close it. A new connection may work. Most
// values of [WCError] belong to this group too, and so does a [PanicError] in a sink.
var (
	ErrQueueFailed = reactor.ErrQueueFailed // always returned together with the reason of the failure
	ErrPeerClosed  = sentinel.Reconnect("runtime: connection closed by the peer")
	ErrQueuePair   = sentinel.Reconnect("runtime: the queue pair failed")
)

// errPeerGaveUp ends an attempt to connect that the peer has ended. Nothing of this program was carried out.
var errPeerGaveUp = sentinel.Later("runtime: the peer ended the connection before it was established", ErrPeerClosed)

// This program closed the object. ErrClosed matches net.ErrClosed and os.ErrClosed.
// ErrConnClosed and ErrWindowClosed match ErrClosed; ErrCancelled does not.
var (
	ErrClosed       = verbs.ErrClosed
	ErrConnClosed   = sentinel.Never("runtime: connection closed", ErrClosed)
	ErrWindowClosed = sentinel.Never("runtime: window closed", ErrClosed)
	ErrCancelled    = sentinel.Never("runtime: connection cancelled")
)

// The device is missing or lacks the feature. Another device may work.
var (
	ErrDeviceRemoved = verbs.ErrDeviceRemoved
	ErrUnknownDevice = verbs.ErrUnknownDevice // *DeviceError
	ErrNotSupported  = verbs.ErrNotSupported
)

// The call is wrong, in general or for this peer. ErrReleased belongs to this group, too. It means
// that memory was used after its release, and does not match ErrClosed.
var (
	ErrConfig     = reactor.ErrConfig
	ErrInvalid    = verbs.ErrInvalid                   // an invalid argument
	ErrNilContext = futures.ErrNilContext              // the context is nil; the call has done nothing
	ErrAddress    = errors.New("runtime: bad address") // may be wrapped with an error of the resolver, which RetryOf classifies
	ErrMode       = sentinel.Never("runtime: not in this connection's mode")
	ErrTooLarge   = sentinel.Never("runtime: too large")
	// TryStartTo and StartFromSink return ErrPieces for an operation that is too long for one work
	// request. Other methods split this operation into several work requests. ErrPieces matches
	// ErrTooLarge.
	ErrPieces      = sentinel.Never("runtime: too long for one work request, and this call cannot start several", ErrTooLarge)
	ErrPermission  = sentinel.Never("runtime: remote memory does not permit this")
	ErrRemoteRange = sentinel.Never("runtime: outside the remote memory")
	ErrWindowState = sentinel.Never("runtime: the window is not in a state for this")
	ErrMessage     = sentinel.Never("runtime: message was released") // for all other memory the error is ErrReleased
	ErrAnswered    = sentinel.Never("runtime: the message was answered, or is being answered")
)

// The peer does not run this package, or is broken. ErrDescriptor (op_remote.go) belongs to
// this group.
var (
	ErrPeerProtocol = sentinel.Never("runtime: the peer broke the protocol")
	ErrProtocol     = sentinel.Never("runtime: malformed protocol data") // matched by every ProtocolError
)

// ErrUnanswered means that the device completed an atomic with success, but did not deliver the
// result. The peer's device may or may not have carried out the atomic: read the remote word to
// find out.
var ErrUnanswered = reactor.ErrUnanswered

// Errors of the layers below.
type (
	// WCError is the error of an operation that completed with a failure status.
	WCError = verbs.WCError
	// OpError is the error of a failed call to the device.
	OpError = verbs.OpError
	// DeviceError is the error for an unknown device. It lists the known devices.
	DeviceError = verbs.DeviceError
	// Retry classifies an error by what a retry requires; see [RetryOf].
	Retry = verbs.Retry
)

// The values of [verbs.Retry].
const (
	RetryNever     = verbs.RetryNever
	RetryReconnect = verbs.RetryReconnect
	RetryLater     = verbs.RetryLater
)

// Retryable reports whether the same call may succeed later, as [verbs.Retryable] does.
func Retryable(err error) bool { return verbs.Retryable(err) }

// RetryOf reports what a retry after err requires, as [verbs.RetryOf] does.
func RetryOf(err error) Retry { return verbs.RetryOf(err) }

var (
	errNoIPv4 = errors.New("the name has no IPv4 address")
	errNoAddr = errors.New("the name has no IP address")
)

// RejectError is the error of a connection attempt that the peer refused.
type RejectError struct {
	Addr   string
	Reason int    // the connection manager's reason (IBTA table 102)
	Code   uint8  // the listener's code; 0 if the listener sent none
	Text   string // the listener's explanation; empty if the listener sent none
	// Data is the data of the listener's program (Refusal.Data). If the listener is bare, or does not
	// run this package, Data is the whole private data of the rejection, and may end with zeros that
	// the connection manager added.
	Data []byte
}

// Error names the peer and the reason.
func (e *RejectError) Error() string {
	s := fmt.Sprintf("connection to %s rejected (reason %d)", e.Addr, e.Reason)
	if e.Reason == rejInvalidService {
		s += ": no listener there"
	}
	if e.Text != "" {
		s += fmt.Sprintf(": %s (code %d)", e.Text, e.Code)
	}
	return s
}

// Retry returns RetryLater if no listener is at the address, the listener is closed, the peer lacks
// resources, the connection manager timed out, or the peer still has a stale connection. Otherwise
// it returns RetryNever.
func (e *RejectError) Retry() Retry {
	switch e.Reason {
	case rejInvalidService, verbs.RejNoQP, verbs.RejNoResources, verbs.RejTimeout, verbs.RejStaleConn:
		return RetryLater
	case verbs.RejConsumer:
		if e.Code == proto.RejectResources || e.Code == proto.RejectClosed {
			return RetryLater
		}
	}
	return RetryNever
}

// ProtocolError is the error for peer data that violates the protocol. It matches
// [ErrProtocol] and [ErrPeerProtocol].
type ProtocolError struct {
	Message    string // "hello", "reject" or "frame"
	Field      string // the offending field
	Have, Want uint64 // the field's value or length, and the expected value or length
}

// Error names the message and the field, with the values.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %s: %s is %d (0x%x), want %d", ErrProtocol, e.Message, e.Field, e.Have, e.Have, e.Want)
}

// Is matches [ErrProtocol] and [ErrPeerProtocol].
func (e *ProtocolError) Is(target error) bool {
	return target == ErrProtocol || target == ErrPeerProtocol
}
