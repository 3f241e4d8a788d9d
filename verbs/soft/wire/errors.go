package wire

import (
	"errors"
	"fmt"
)

// ErrMalformed is matched by every [*ParseError].
var ErrMalformed = errors.New("wire: malformed packet")

// Reason is the reason for refusing a packet.
type Reason uint8

// Values of Reason.
const (
	Truncated     Reason = iota + 1 // shorter than its headers
	UnknownOpcode                   // reserved, or of a transport that is not supported
	BadVersion                      // transport header version other than 0
	BadSyndrome                     // reserved kind or code of acknowledgement
)

// ParseError describes a refused packet.
type ParseError struct {
	Reason Reason
	Opcode Opcode // 0 when the packet was too short to have one
	Have   int    // the length in bytes, or the refused value
	Want   int    // the required length in bytes
}

// Error describes the fault with its values.
func (e *ParseError) Error() string {
	switch e.Reason {
	case Truncated:
		if e.Want == BTHLen {
			return fmt.Sprintf("wire: packet of %d bytes is shorter than its base transport header of %d", e.Have, e.Want)
		}
		return fmt.Sprintf("wire: %v of %d bytes is shorter than its headers of %d", e.Opcode, e.Have, e.Want)
	case UnknownOpcode:
		return fmt.Sprintf("wire: opcode 0x%02x does not exist", e.Have)
	case BadVersion:
		return fmt.Sprintf("wire: %v has transport header version %d, only 0 is known", e.Opcode, e.Have)
	default:
		return fmt.Sprintf("wire: %v has the reserved acknowledge syndrome 0x%02x", e.Opcode, e.Have)
	}
}

// Is matches ErrMalformed, and another *ParseError with the same Reason.
func (e *ParseError) Is(target error) bool {
	if target == ErrMalformed {
		return true
	}
	t, ok := target.(*ParseError)
	return ok && t.Reason == e.Reason
}
