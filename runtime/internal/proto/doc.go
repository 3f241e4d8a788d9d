// Package proto encodes the data that two runtimes exchange in addition to the caller's bytes: a
// hello in the private data of connect and accept, a reason in the private data of reject, and in
// credit mode a frame header in front of every message. All numbers are little-endian. All input is
// untrusted: the parsers refuse anything invalid with a [Malformed]. They also refuse reserved
// fields that are not zero, unless the peer has offered a feature that may use them ([Features]).
//
// All functions may be called from any goroutine; none blocks.
package proto

// Magic is at the beginning of each hello and reject. It distinguishes this protocol from other
// users of the same port.
const Magic = "VRBN"

// version is the common version of hello and frame. Version 2 brought grants that grow and are recalled,
// version 3 messages that the receiver reads, version 4 numbers of questions, recalls without a credit, and
// the features of the hello.
const version = 4

// rejectVersion is the version of a reject. Its layout has not changed since version 3 and does not change, so
// that an end of another version shows the reason of a refusal.
const rejectVersion = 3

// Malformed describes a violation of the protocol. Package runtime converts it to a
// runtime.ProtocolError, which has the same fields and is an error.
type Malformed struct {
	Message    string // "hello", "reject" or "frame"
	Field      string // the invalid field
	Have, Want uint64 // the field's value or length, and the expected one
}
