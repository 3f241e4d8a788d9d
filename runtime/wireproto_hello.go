package runtime

import (
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/verbena-rdma/verbena/verbs"
)

// hello is what each side says of itself in the private data of connect and
// accept:
//
//	0     4       5     6        7  8       12        16             32
//	┌─────┬───────┬─────┬────────┬──┬───────┬─────────┬──────────────┬──────────┬─────────┐
//	│magic│version│flags│user len│0 │credits│recv size│auth, zero    │user data │zeros    │
//	└─────┴───────┴─────┴────────┴──┴───────┴─────────┴──────────────┴──────────┴─────────┘
//
// The zeros at the end are the connection manager's padding.
type hello struct {
	raw      bool
	credits  uint32 // receives posted for the peer
	recvSize uint32 // bytes of payload that each takes
	user     []byte // the caller's private data
}

const (
	helloSize    = 32                                 // before the user's data
	helloAuth    = 16                                 // offset of what authentication will use
	helloFlagRaw = 1 << 0                             // receives are the caller's business
	helloMaxUser = verbs.MaxPrivateAccept - helloSize // the larger of connect's and accept's
)

// encodeHello is the private data that says h. It panics if the user's data is
// longer than [MaxAcceptData]; whoever dials checks [MaxDialData] before.
func encodeHello(h hello) []byte {
	if len(h.user) > helloMaxUser {
		panic(fmt.Sprintf("runtime: %d bytes of private data, at most %d fit", len(h.user), helloMaxUser))
	}
	b := make([]byte, helloSize, helloSize+len(h.user))
	copy(b, protoMagic)
	b[4] = protoVersion
	if h.raw {
		b[5] = helloFlagRaw
	}
	b[6] = uint8(len(h.user))
	binary.LittleEndian.PutUint32(b[8:], h.credits)
	binary.LittleEndian.PutUint32(b[12:], h.recvSize)
	return append(b, h.user...)
}

// parseHello reads a hello. user is a copy: the event that b belongs to is
// acknowledged sooner than the connection ends.
func parseHello(b []byte) (hello, error) {
	refuse := func(field string, have, want int) (hello, error) {
		return hello{}, &ProtocolError{Message: "hello", Field: field, Have: uint64(have), Want: uint64(want)}
	}
	if err := checkStart("hello", b, helloSize); err != nil {
		return hello{}, err
	}
	n := int(b[6])
	switch {
	case b[5]&^helloFlagRaw != 0:
		return refuse("unknown flags", int(b[5]), helloFlagRaw)
	case b[7] != 0:
		return refuse("reserved byte", int(b[7]), 0)
	case n > len(b)-helloSize:
		return refuse("length of user data", n, len(b)-helloSize)
	}
	// Who sends authentication expects it to be checked, which we cannot.
	if i := nonZero(b[helloAuth:helloSize]); i >= 0 {
		return refuse("authentication, not known in version 1,", int(b[helloAuth+i]), 0)
	}
	if i := nonZero(b[helloSize+n:]); i >= 0 {
		return refuse("padding", int(b[helloSize+n+i]), 0)
	}
	h := hello{
		raw:     b[5]&helloFlagRaw != 0,
		credits: binary.LittleEndian.Uint32(b[8:]), recvSize: binary.LittleEndian.Uint32(b[12:]),
	}
	if n > 0 {
		h.user = append([]byte(nil), b[helloSize:helloSize+n]...)
	}
	return h, nil
}

// checkStart checks length, magic and version.
func checkStart(message string, b []byte, size int) error {
	refuse := func(field string, have, want uint64) error {
		return &ProtocolError{Message: message, Field: field, Have: have, Want: want}
	}
	if len(b) < size {
		return refuse("length", uint64(len(b)), uint64(size))
	}
	if string(b[:4]) != protoMagic {
		return refuse("magic", uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32([]byte(protoMagic))))
	}
	if b[4] != protoVersion {
		return refuse("version", uint64(b[4]), protoVersion)
	}
	return nil
}

// nonZero is the first offset in b that is not zero, or -1.
func nonZero(b []byte) int {
	for i, c := range b {
		if c != 0 {
			return i
		}
	}
	return -1
}

// Why a connection was refused: the code in the private data of a reject. Codes
// that are not known are shown as numbers.
const (
	rejectProtocol  uint16 = 1 // the hello was not understood
	rejectMode      uint16 = 2 // one side is raw, the other not
	rejectResources uint16 = 3 // no memory or no queue pair for the connection
	rejectClosed    uint16 = 4 // the listener is closing
	rejectUser      uint16 = 5 // the program that listens refused
)

// A reject is magic, version, length of the text, code, and the text.
const (
	rejectSize    = 8
	rejectMaxText = 100 // a sentence; well inside verbs.MaxPrivateReject
)

// encodeReject is the private data of a refusal. The text is cut to
// rejectMaxText bytes, and what could disturb a terminal or a log becomes '?'.
func encodeReject(code uint16, text string) []byte {
	b := make([]byte, rejectSize, rejectSize+rejectMaxText)
	copy(b, protoMagic)
	b[4] = protoVersion
	binary.LittleEndian.PutUint16(b[6:], code)
	for _, r := range text {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			r = '?'
		}
		if len(b)+utf8.RuneLen(r) > rejectSize+rejectMaxText {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	b[5] = uint8(len(b) - rejectSize)
	return b
}

// parseReject reads a refusal. The text is printable, and at most rejectMaxText
// bytes.
func parseReject(b []byte) (code uint16, text string, err error) {
	refuse := func(field string, have, want int) (uint16, string, error) {
		return 0, "", &ProtocolError{Message: "reject", Field: field, Have: uint64(have), Want: uint64(want)}
	}
	if err := checkStart("reject", b, rejectSize); err != nil {
		return 0, "", err
	}
	n := int(b[5])
	if most := min(rejectMaxText, len(b)-rejectSize); n > most {
		return refuse("length of text", n, most)
	}
	if i := nonZero(b[rejectSize+n:]); i >= 0 {
		return refuse("padding", int(b[rejectSize+n+i]), 0)
	}
	text = string(b[rejectSize : rejectSize+n])
	for i, r := range text {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return refuse("text with an unprintable byte, which", int(text[i]), '?')
		}
	}
	return binary.LittleEndian.Uint16(b[6:]), text, nil
}
