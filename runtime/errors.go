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

// The errors of this package and of what is below it, by what a program does about them;
// for errors.Is. They come wrapped, with the values that were wrong. [RetryOf] has the first
// two groups in one call. What those that end a connection say of its operations stands in
// the package's manual (doc.go).

// Nothing was done, and others have what is wanted: the same call may succeed later.
var (
	ErrQueueFull   = reactor.ErrQueueFull                                                  // by TryStartTo and StartFromSink: Options.SendDepth are under way
	ErrNoCredit    = sentinel.Later("runtime: the peer has no receive free", ErrQueueFull) // likewise
	ErrRecvFull    = reactor.ErrRecvFull                                                   // Options.RecvCredits are posted
	ErrTooMany     = reactor.ErrTooMany                                                    // connections of one reactor
	ErrBusy        = verbs.ErrBusy                                                         // something uses what is to be closed
	ErrMemlock     = verbs.ErrMemlock                                                      // of the process: *MemlockError
	ErrNoGID       = verbs.ErrNoGID                                                        // the port has no address, or is down
	ErrUnreachable = sentinel.Later("runtime: peer unreachable")
	// ErrConnectTimeout and ErrReactorBusy match os.ErrDeadlineExceeded. What was begun
	// goes on after ErrReactorBusy, and the same call waits for it.
	ErrConnectTimeout = sentinel.Later("runtime: connecting took too long", os.ErrDeadlineExceeded)
	ErrReactorBusy    = sentinel.Later("runtime: the reactor did not come to it", os.ErrDeadlineExceeded)
)

// The connection has ended, and not by this program: another one may do. So it is after
// most of [WCError], and after a [PanicError] in a sink.
var (
	ErrQueueFailed = reactor.ErrQueueFailed // comes with one of the others
	ErrPeerClosed  = sentinel.Reconnect("runtime: connection closed by the peer")
	ErrQueuePair   = sentinel.Reconnect("runtime: the queue pair failed")
)

// This program has ended it. ErrClosed is what everything that was closed here answers, and
// matches net.ErrClosed and os.ErrClosed; the others but ErrCancelled match it.
var (
	ErrClosed       = verbs.ErrClosed
	ErrConnClosed   = sentinel.Never("runtime: connection closed", ErrClosed)
	ErrWindowClosed = sentinel.Never("runtime: window closed", ErrClosed)
	ErrCancelled    = sentinel.Never("runtime: connection cancelled")
)

// The device is not there, or cannot do it: another device may.
var (
	ErrDeviceRemoved = verbs.ErrDeviceRemoved
	ErrUnknownDevice = verbs.ErrUnknownDevice // *DeviceError
	ErrNotSupported  = verbs.ErrNotSupported
)

// The call is wrong, here or for this peer. Memory that is used after it was given back is
// a mistake and no end of anything: it does not match ErrClosed.
var (
	ErrConfig     = reactor.ErrConfig
	ErrInvalid    = verbs.ErrInvalid                   // an argument that cannot be
	ErrNilContext = futures.ErrNilContext              // by all that takes a context, before anything else
	ErrAddress    = errors.New("runtime: bad address") // RetryOf asks the resolver's error that it wraps
	ErrMode       = sentinel.Never("runtime: not in this connection's mode")
	ErrTooLarge   = sentinel.Never("runtime: too large")
	// ErrPieces is what TryStartTo and StartFromSink answer for an operation that is larger than
	// one work request carries: they never take it, the others do. It matches ErrTooLarge.
	ErrPieces      = sentinel.Never("runtime: more than one work request carries, which waits between its pieces", ErrTooLarge)
	ErrPermission  = sentinel.Never("runtime: remote memory does not permit this")
	ErrRemoteRange = sentinel.Never("runtime: outside the remote memory")
	ErrWindowState = sentinel.Never("runtime: the window is not in a state for this")
	ErrMessage     = sentinel.Never("runtime: message was released") // of memory: ErrReleased
)

// The peer is no runtime, or one that is broken. ErrDescriptor (op_remote.go) is one of these, too.
var (
	ErrPeerProtocol = sentinel.Never("runtime: the peer broke the protocol")
	ErrProtocol     = sentinel.Never("runtime: malformed protocol data") // every ProtocolError
)

// ErrUnanswered is an atomic of which nobody knows whether it was carried out: look at the
// word, then decide.
var ErrUnanswered = reactor.ErrUnanswered

// Errors of the layers below.
type (
	// WCError is an operation that completed without success, with a status.
	WCError = verbs.WCError
	// OpError is a call of the device's that failed.
	OpError = verbs.OpError
	// DeviceError is a device that was not found, with those that there are.
	DeviceError = verbs.DeviceError
	// Retry is what trying again takes: [RetryOf].
	Retry = verbs.Retry
)

// What trying again takes, as [verbs.Retry] has it.
const (
	RetryNever     = verbs.RetryNever
	RetryReconnect = verbs.RetryReconnect
	RetryLater     = verbs.RetryLater
)

// Retryable reports whether the same call may succeed later, as [verbs.Retryable] does.
func Retryable(err error) bool { return verbs.Retryable(err) }

// RetryOf tells what trying again takes, as [verbs.RetryOf] does.
func RetryOf(err error) Retry { return verbs.RetryOf(err) }

var errNoIPv4 = errors.New("the name has no IPv4 address")

// RejectError is a connection that the other side refused.
type RejectError struct {
	Addr   string
	Reason int    // of the connection manager (IBTA table 102)
	Code   uint16 // of the listener, when it spoke
	Text   string
}

// Error says who refused and why.
func (e *RejectError) Error() string {
	s := fmt.Sprintf("connection to %s rejected (reason %d)", e.Addr, e.Reason)
	if e.Reason == rejInvalidService {
		s += ": nobody listens there"
	}
	if e.Text != "" {
		s += fmt.Sprintf(": %s (code %d)", e.Text, e.Code)
	}
	return s
}

// Retry is RetryLater when nobody listens there yet, or the other side has no room.
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

// ProtocolError is something a peer said that does not follow the protocol. It
// matches [ErrProtocol] and [ErrPeerProtocol].
type ProtocolError struct {
	Message    string // "hello", "reject" or "frame"
	Field      string // what was wrong with it
	Have, Want uint64 // the field's value or length, and what it should be
}

// Error says which field of which message was wrong, with the values.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %s: %s is %d (0x%x), want %d", ErrProtocol, e.Message, e.Field, e.Have, e.Have, e.Want)
}

// Is matches [ErrProtocol] and [ErrPeerProtocol].
func (e *ProtocolError) Is(target error) bool {
	return target == ErrProtocol || target == ErrPeerProtocol
}
