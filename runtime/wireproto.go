package runtime

import (
	"errors"
	"fmt"
)

// What two runtimes say to each other beside the caller's bytes: a hello in the
// private data of connect and accept, a reason in that of reject, and in credit
// mode a frame header in front of every message. All numbers are little-endian.
// All of it comes from outside: what does not fit is refused with a
// *[ProtocolError], reserved fields included, so that they stay free for later
// versions.
const (
	protoMagic   = "VRBN" // distinguishes us from other users of the same port
	protoVersion = 1      // of hello, reject and frame together
)

// ErrProtocol is matched by every [*ProtocolError].
var ErrProtocol = errors.New("runtime: malformed protocol data")

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
