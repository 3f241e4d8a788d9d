package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// The sentinels of this room. What those that end a connection say of its operations stands
// in the package's manual (doc.go).
var (
	ErrConfig         = errors.New("runtime: bad configuration")
	ErrClosed         = errors.New("runtime: closed")
	ErrConnClosed     = errors.New("runtime: connection closed")
	ErrCancelled      = errors.New("runtime: connection cancelled")
	ErrPeerClosed     = errors.New("runtime: connection closed by the peer")
	ErrAddress        = errors.New("runtime: bad address")
	ErrUnreachable    = errors.New("runtime: peer unreachable")
	ErrConnectTimeout = errors.New("runtime: connecting took too long")
	ErrTooLarge       = errors.New("runtime: message too large")
	ErrPermission     = errors.New("runtime: remote memory does not permit this")
	ErrRemoteRange    = errors.New("runtime: outside the remote memory")
	ErrMode           = errors.New("runtime: not in this connection's mode")
	ErrMessage        = errors.New("runtime: message was released")
	ErrQueuePair      = errors.New("runtime: the queue pair failed")
	ErrReactorBusy    = errors.New("runtime: the reactor did not come to it")
	ErrPeerProtocol   = errors.New("runtime: the peer broke the protocol")
	ErrProtocol       = errors.New("runtime: malformed protocol data") // every ProtocolError
)

// ErrNilContext is what everything that takes a context answers for a nil one, before it
// does anything.
var ErrNilContext = futures.ErrNilContext

// What TryStartTo answers when it would have to wait; reactor.ErrQueueFull too.
var (
	ErrNoCredit = fmt.Errorf("runtime: the peer has no receive free: %w", reactor.ErrQueueFull)
	errPieces   = fmt.Errorf("runtime: an operation of several pieces: %w", reactor.ErrQueueFull)
)

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
