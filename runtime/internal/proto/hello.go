package proto

import (
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/verbena-rdma/verbena/verbs"
)

// Hello is each side's description of itself in the private data of connect and accept:
//
//	0     4       5     6        7  8       10   12        16      20       24      32
//	┌─────┬───────┬─────┬────────┬──┬───────┬────┬─────────┬───────┬────────┬───────┬──────────┬───────┐
//	│magic│version│flags│user len│lg│credits│most│recv size│offered│required│details│user data │details│
//	└─────┴───────┴─────┴────────┴──┴───────┴────┴─────────┴───────┴────────┴───────┴──────────┴───────┘
//
// The details belong to features. They are zero unless a feature is offered, and an end ignores those of
// features that it does not know. The connection manager pads private data with zeros at the end.
type Hello struct {
	Raw      bool   // on the sender's side the user posts the receives
	Credits  uint16 // receives posted for the peer
	Most     uint16 // the most credits that the sender of the hello grants at one time
	RecvSize uint32 // payload bytes of each receive
	// LargeBits is lg: the sender of the hello reads messages of up to 2^lg bytes from the peer's memory. 0
	// means that it reads none.
	LargeBits uint8
	// Offered has the features that the sender of the hello knows, and Required those without which it does
	// not connect. A required feature is offered, too.
	Offered, Required Features
	User              []byte // the caller's private data
}

// Features is a set of features, one bit each. A connection uses the features that both ends offer. An end
// ignores features that it does not know, unless the peer requires them. So a later version of the program can
// add a feature without a new version of the protocol.
type Features uint32

// KnownFeatures are the features of this version of the program, which it offers.
const KnownFeatures Features = 0

// HelloSize is the size in bytes of a hello before the user's data.
const HelloSize = 32

const (
	helloDetails = 24                                 // offset of the details
	helloFlagRaw = 1 << 0                             // Hello.Raw
	maxLargeBits = 30                                 // the length of a Source has 32 bits
	helloMaxUser = verbs.MaxPrivateAccept - HelloSize // accept has more private data than connect
)

// EncodeHello encodes h as private data. It panics if the user's data does not fit into the private
// data of accept. Connect has less room, which a dialer checks before.
func EncodeHello(h Hello) []byte {
	if len(h.User) > helloMaxUser {
		panic(fmt.Sprintf("proto: %d bytes of private data, at most %d fit", len(h.User), helloMaxUser))
	}
	b := make([]byte, HelloSize, HelloSize+len(h.User))
	copy(b, Magic)
	b[4] = version
	if h.Raw {
		b[5] = helloFlagRaw
	}
	b[6], b[7] = uint8(len(h.User)), h.LargeBits
	binary.LittleEndian.PutUint16(b[8:], h.Credits)
	binary.LittleEndian.PutUint16(b[10:], h.Most)
	binary.LittleEndian.PutUint32(b[12:], h.RecvSize)
	binary.LittleEndian.PutUint32(b[16:], uint32(h.Offered))
	binary.LittleEndian.PutUint32(b[20:], uint32(h.Required))
	return append(b, h.User...)
}

// ParseHello reads a hello. The field User is a copy of the bytes in b, because the event that owns
// b is acknowledged before the connection ends.
func ParseHello(b []byte) (Hello, *Malformed) {
	refuse := func(field string, have, want int) (Hello, *Malformed) {
		return Hello{}, &Malformed{Message: "hello", Field: field, Have: uint64(have), Want: uint64(want)}
	}
	if err := checkStart("hello", b, HelloSize, version); err != nil {
		return Hello{}, err
	}
	n := int(b[6])
	offered, required := Features(binary.LittleEndian.Uint32(b[16:])), Features(binary.LittleEndian.Uint32(b[20:]))
	switch {
	case b[5]&^helloFlagRaw != 0:
		return refuse("unknown flags", int(b[5]), helloFlagRaw)
	case b[7] > maxLargeBits:
		return refuse("size of large messages", int(b[7]), maxLargeBits)
	case n > len(b)-HelloSize:
		return refuse("length of user data", n, len(b)-HelloSize)
	case required&^offered != 0:
		return refuse("features required and not offered", int(required), int(required&offered))
	case required&^KnownFeatures != 0:
		return refuse("required features", int(required), int(required&KnownFeatures))
	}
	if offered == 0 {
		if i := nonZero(b[helloDetails:HelloSize]); i >= 0 {
			return refuse("details without a feature", int(b[helloDetails+i]), 0)
		}
		if i := nonZero(b[HelloSize+n:]); i >= 0 {
			return refuse("padding", int(b[HelloSize+n+i]), 0)
		}
	}
	h := Hello{
		Raw:     b[5]&helloFlagRaw != 0,
		Credits: binary.LittleEndian.Uint16(b[8:]), Most: binary.LittleEndian.Uint16(b[10:]),
		RecvSize: binary.LittleEndian.Uint32(b[12:]), LargeBits: b[7], Offered: offered, Required: required,
	}
	if n > 0 {
		h.User = append([]byte(nil), b[HelloSize:HelloSize+n]...)
	}
	return h, nil
}

// checkStart checks length, magic and version.
func checkStart(message string, b []byte, size int, version uint8) *Malformed {
	refuse := func(field string, have, want uint64) *Malformed {
		return &Malformed{Message: message, Field: field, Have: have, Want: want}
	}
	if len(b) < size {
		return refuse("length", uint64(len(b)), uint64(size))
	}
	if string(b[:4]) != Magic {
		return refuse("magic", uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32([]byte(Magic))))
	}
	if b[4] != version {
		return refuse("version", uint64(b[4]), uint64(version))
	}
	return nil
}

// nonZero returns the first offset in b that is not zero, or -1.
func nonZero(b []byte) int {
	for i, c := range b {
		if c != 0 {
			return i
		}
	}
	return -1
}

// Reasons for refusing a connection, sent as the code in the private data of a reject. Unknown
// codes are shown as numbers.
const (
	RejectProtocol  uint8 = 1 // the hello was not understood
	RejectMode      uint8 = 2 // one side is raw, the other is managed
	RejectResources uint8 = 3 // no memory or no queue pair for the connection
	RejectClosed    uint8 = 4 // the listener is closing
	RejectRefused   uint8 = 5 // the listener's program does not want the peer
)

// Reject is a refusal, as private data: magic, version, length of the text, code, length of the data,
// text, data.
type Reject struct {
	Code uint8
	Text string
	Data []byte // the program's
}

const (
	rejectSize    = 8
	rejectMaxText = 100 // a sentence
	// RejectMaxData is the largest size of Reject.Data, in bytes.
	RejectMaxData = verbs.MaxPrivateReject - rejectSize - rejectMaxText
)

// Encode encodes r as private data. It cuts the text to rejectMaxText bytes, and replaces unprintable
// characters by '?'. It panics if the data does not fit, which the caller must check.
func (r Reject) Encode() []byte {
	if len(r.Data) > RejectMaxData {
		panic("proto: data of a reject")
	}
	b := make([]byte, rejectSize, verbs.MaxPrivateReject)
	copy(b, Magic)
	b[4] = rejectVersion
	for _, c := range r.Text {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			c = '?'
		}
		if len(b)+utf8.RuneLen(c) > rejectSize+rejectMaxText {
			break
		}
		b = utf8.AppendRune(b, c)
	}
	b[5], b[6], b[7] = uint8(len(b)-rejectSize), r.Code, uint8(len(r.Data))
	return append(b, r.Data...)
}

// ParseReject reads a refusal. The text is printable and has at most rejectMaxText bytes. Data is a copy.
func ParseReject(b []byte) (r Reject, bad *Malformed) {
	refuse := func(field string, have, want int) (Reject, *Malformed) {
		return Reject{}, &Malformed{Message: "reject", Field: field, Have: uint64(have), Want: uint64(want)}
	}
	if err := checkStart("reject", b, rejectSize, rejectVersion); err != nil {
		return r, err
	}
	n, d := int(b[5]), int(b[7])
	if most := min(rejectMaxText, len(b)-rejectSize); n > most {
		return refuse("length of text", n, most)
	}
	if most := min(RejectMaxData, len(b)-rejectSize-n); d > most {
		return refuse("length of data", d, most)
	}
	if i := nonZero(b[rejectSize+n+d:]); i >= 0 {
		return refuse("padding", int(b[rejectSize+n+d+i]), 0)
	}
	text := string(b[rejectSize : rejectSize+n])
	for i, c := range text {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			return refuse("text with an unprintable byte, which", int(text[i]), '?')
		}
	}
	return Reject{Code: b[6], Text: text, Data: append([]byte(nil), b[rejectSize+n:rejectSize+n+d]...)}, nil
}
