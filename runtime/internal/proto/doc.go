// Package proto is what two runtimes say to each other beside the caller's bytes:
// a hello in the private data of connect and accept, a reason in that of reject,
// and in credit mode a frame header in front of every message. All numbers are
// little-endian. All of it comes from outside: what does not fit is refused with a
// [Malformed], reserved fields included, so that they stay free for later versions.
//
// Every function here may be called from any goroutine, and none blocks.
package proto

// Magic begins each hello and reject: it distinguishes us from other users of the
// same port.
const Magic = "VRBN"

// version is that of hello, reject and frame together.
const version = 1

// Malformed is what does not follow the protocol: the fields of runtime.ProtocolError,
// which has the error's text.
type Malformed struct {
	Message    string // "hello", "reject" or "frame"
	Field      string // what was wrong with it
	Have, Want uint64 // the field's value or length, and what it should be
}
