package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MADSize is the size of every management datagram, in bytes (IBTA 13.4.2).
const MADSize = 256

// MAD is a management datagram.
type MAD [MADSize]byte

// The common header (IBTA 13.4.2, kernel include/rdma/ib_mad.h struct ib_mad_hdr) and the offsets
// of its members.
const (
	baseVersion  = 1
	classCM      = 0x07 // communication management
	classVersion = 2    // IB_CM_CLASS_VERSION, IBTA 1.2 and later
	methodSend   = 0x03

	offBase     = 0
	offClass    = 1
	offClassVer = 2
	offMethod   = 3
	offStatus   = 4
	offTID      = 8
	offAttr     = 16
	offModifier = 20 // of a REQ and a REP: the options of the ECE
	offBody     = 24 // every CM message begins with its communication IDs
)

// Attr is the attribute ID, the kind of a CM message.
type Attr uint16

// Values of Attr (IBTA table 99; kernel include/rdma/ib_cm.h CM_*_ATTR_ID).
const (
	AttrREQ  Attr = 0x10
	AttrMRA  Attr = 0x11
	AttrREJ  Attr = 0x12
	AttrREP  Attr = 0x13
	AttrRTU  Attr = 0x14
	AttrDREQ Attr = 0x15
	AttrDREP Attr = 0x16
)

var attrNames = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"}

// String returns the name of the message in the specification.
func (a Attr) String() string {
	if i := int(a) - int(AttrREQ); i >= 0 && i < len(attrNames) {
		return attrNames[i]
	}
	return fmt.Sprintf("Attr(0x%04x)", uint16(a))
}

// Sizes of the private data of each message, in bytes (kernel
// include/rdma/ib_cm.h enum ib_cm_data_size).
const (
	PrivateREQ  = 92
	PrivateMRA  = 222
	PrivateREJ  = 148
	PrivateREP  = 196
	PrivateRTU  = 224
	PrivateDREQ = 220
	PrivateDREP = 224
	SizeARI     = 72 // additional reject information
)

// Errors of the codec. Returned errors wrap them and name the field and its value.
var (
	// ErrMalformed reports a datagram that is not a valid CM message.
	ErrMalformed = errors.New("cm: malformed datagram")
	// ErrRange reports a value that does not fit its field.
	ErrRange = errors.New("cm: value does not fit its field")
)

// FieldError describes a field that could not be read (errors.Is ErrMalformed) or written
// (ErrRange).
type FieldError struct {
	Msg   string // the message, or "MAD" for the common header
	Field string
	Value uint64
	Want  string
	cause error
}

// Error names the message, the field, its value and the expected one.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s %s is 0x%x, want %s", e.cause, e.Msg, e.Field, e.Value, e.Want)
}

// Unwrap returns ErrMalformed or ErrRange.
func (e *FieldError) Unwrap() error { return e.cause }

func malformed(msg, field string, value uint64, want string) error {
	return &FieldError{Msg: msg, Field: field, Value: value, Want: want, cause: ErrMalformed}
}

// Message is one of *REQ, *REP, *RTU, *REJ, *MRA, *DREQ, *DREP, *SIDRREQ, *SIDRREP.
type Message interface {
	// Attr returns the kind of message.
	Attr() Attr
	// Put encodes the message into m. It refuses a value wider than its field with a *FieldError
	// and leaves m undefined.
	Put(m *MAD) error
	parse(m *MAD) error
}

// Parse decodes a datagram. It accepts exactly MADSize bytes of base version 1, class 7 version 2
// and method Send. Reserved bits are ignored, as the specification requires of a receiver; a
// reserved value is refused. The result does not refer to b. The error is a *FieldError that wraps
// ErrMalformed.
func Parse(b []byte) (Message, error) { return parse(b, new(REQ)) }

// parse is Parse, but decodes a REQ into req: a flood of them then allocates nothing.
func parse(b []byte, req *REQ) (Message, error) {
	if len(b) != MADSize {
		return nil, malformed("MAD", "size", uint64(len(b)), "256 bytes")
	}
	m := (*MAD)(b)
	switch {
	case m[offBase] != baseVersion:
		return nil, malformed("MAD", "base version", uint64(m[offBase]), "1")
	case m[offClass] != classCM:
		return nil, malformed("MAD", "management class", uint64(m[offClass]), "7")
	case m[offClassVer] != classVersion:
		return nil, malformed("MAD", "class version", uint64(m[offClassVer]), "2")
	case m[offMethod] != methodSend:
		return nil, malformed("MAD", "method", uint64(m[offMethod]), "3 (Send)")
	case get16(m, offStatus) != 0:
		return nil, malformed("MAD", "status", uint64(get16(m, offStatus)), "0")
	}
	var msg Message
	switch a := Attr(get16(m, offAttr)); a {
	case AttrREQ:
		*req = REQ{}
		msg = req
	case AttrMRA:
		msg = new(MRA)
	case AttrREJ:
		msg = new(REJ)
	case AttrREP:
		msg = new(REP)
	case AttrRTU:
		msg = new(RTU)
	case AttrDREQ:
		msg = new(DREQ)
	case AttrDREP:
		msg = new(DREP)
	case AttrSIDRREQ:
		msg = new(SIDRREQ)
	case AttrSIDRREP:
		msg = new(SIDRREP)
	default:
		return nil, malformed("MAD", "attribute ID", uint64(a), "0x10 to 0x18")
	}
	if err := msg.parse(m); err != nil {
		return nil, err
	}
	return msg, nil
}

// begin clears m and writes the common header.
func begin(m *MAD, a Attr, tid uint64) {
	*m = MAD{}
	m[offBase], m[offClass], m[offClassVer], m[offMethod] = baseVersion, classCM, classVersion, methodSend
	put64(m, offTID, tid)
	put16(m, offAttr, uint16(a))
}

func get16(m *MAD, o int) uint16    { return binary.BigEndian.Uint16(m[o:]) }
func get24(m *MAD, o int) uint32    { return binary.BigEndian.Uint32(m[o:]) >> 8 }
func get32(m *MAD, o int) uint32    { return binary.BigEndian.Uint32(m[o:]) }
func get64(m *MAD, o int) uint64    { return binary.BigEndian.Uint64(m[o:]) }
func put16(m *MAD, o int, v uint16) { binary.BigEndian.PutUint16(m[o:], v) }
func put32(m *MAD, o int, v uint32) { binary.BigEndian.PutUint32(m[o:], v) }
func put64(m *MAD, o int, v uint64) { binary.BigEndian.PutUint64(m[o:], v) }

const max24 = 1<<24 - 1

// put24 writes v into the upper 24 bits of a word whose lower 8 bits are low.
func put24(m *MAD, o int, v uint32, low uint8) { put32(m, o, v<<8|uint32(low)) }

func bit(b bool, shift uint) uint8 {
	if b {
		return 1 << shift
	}
	return 0
}

// widths checks values against field widths and keeps the first error.
type widths struct {
	msg Attr
	err error
}

func (w *widths) fit(field string, v uint64, bits uint) {
	if w.err == nil && v>>bits != 0 {
		w.err = &FieldError{Msg: w.msg.String(), Field: field, Value: v, Want: fmt.Sprintf("at most %d bits", bits), cause: ErrRange}
	}
}

// checkID refuses the communication ID 0, which is not valid.
func checkID(a Attr, field string, id uint32) error {
	if id == 0 {
		return malformed(a.String(), field, 0, "a communication ID other than 0")
	}
	return nil
}

// checkQPN refuses the two management queue pairs, which cannot be connected.
func checkQPN(a Attr, qpn uint32) error {
	if qpn < 2 {
		return malformed(a.String(), "local QPN", uint64(qpn), "a queue pair number above 1")
	}
	return nil
}
