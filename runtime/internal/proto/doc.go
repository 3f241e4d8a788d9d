// Package proto encodes what two runtimes exchange beside the caller's bytes: a hello in the
// private data of connect and accept, a reason in that of reject, and in credit mode a frame header
// in front of every message. All numbers are little-endian. All input is untrusted: anything
// invalid is refused with a [Malformed], nonzero reserved fields included, so that later versions
// can use them.
//
// All functions may be called from any goroutine; none blocks.
package proto

// Magic begins each hello and reject: it distinguishes this protocol from other users of the same
// port.
const Magic = "VRBN"

// version is the common version of hello, reject and frame.
const version = 1

// Malformed describes a violation of the protocol: the fields of runtime.ProtocolError, which has
// the error's text.
type Malformed struct {
	Message    string // "hello", "reject" or "frame"
	Field      string // the invalid field
	Have, Want uint64 // the field's value or length, and the expected one
}
