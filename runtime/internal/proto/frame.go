package proto

import "encoding/binary"

// Frame is the header of every message in credit mode:
//
//	0       1     2      4        8        12       16
//	┌───────┬─────┬──────┬────────┬────────┬────────┬─────────┐
//	│version│kind │flags │credits │length  │unused  │payload  │
//	└───────┴─────┴──────┴────────┴────────┴────────┴─────────┘
//
// The header has 16 bytes, so that the payload keeps the alignment of its buffer.
type Frame struct {
	Kind    Kind
	More    bool   // the sender has used its last credit: more credits are of use
	Credits uint32 // credits that the sender grants: the permission to send as many more messages
	Length  uint32 // bytes of payload; 0 except for Data and Large
	// Unused is the number of credits that the sender of a Return gives up, in addition to the one
	// that the frame itself uses. It is 0 for any other kind.
	Unused uint32
}

// Kind is the kind of a frame.
type Kind uint8

// Kinds of frames; no other is accepted. All of them except Credit, Fetched and First use a credit.
const (
	Data    Kind = 1 // a message
	Credit  Kind = 2 // only credits
	Recall  Kind = 3 // asks the receiver of the frame to give up its unused credits
	Return  Kind = 4 // the answer to Recall
	Large   Kind = 5 // a message that the receiver of the frame reads; the payload is a Source
	Fetched Kind = 6 // the answer to Large: a SEND_WITH_INV with the key of the Source
	First   Kind = 7 // the first frame of the dialing end on iWARP; no other frame of this kind follows

	lastKind = First
)

// frameMore is the flag of Frame.More.
const frameMore = 1 << 0

// FrameSize is the size of a header in bytes.
const FrameSize = 16

// Encode writes the header. It does not allocate.
func (f Frame) Encode(b *[FrameSize]byte) {
	b[0], b[1], b[2], b[3] = version, uint8(f.Kind), 0, 0
	if f.More {
		b[2] = frameMore
	}
	binary.LittleEndian.PutUint32(b[4:], f.Credits)
	binary.LittleEndian.PutUint32(b[8:], f.Length)
	binary.LittleEndian.PutUint32(b[12:], f.Unused)
}

// ParseFrame reads the header of a message, which is at the beginning of the buffer b. total is the
// length of the message in bytes, as the completion reports it. ParseFrame allocates only for an
// error. The caller checks the number of credits, which depends on earlier frames.
func ParseFrame(b []byte, total int) (Frame, *Malformed) {
	refuse := func(field string, have, want uint64) (Frame, *Malformed) {
		return Frame{}, &Malformed{Message: "frame", Field: field, Have: have, Want: want}
	}
	if total < FrameSize || len(b) < FrameSize {
		return refuse("length of the message", uint64(max(min(total, len(b)), 0)), FrameSize)
	}
	f := Frame{
		Kind:    Kind(b[1]),
		More:    b[2]&frameMore != 0,
		Credits: binary.LittleEndian.Uint32(b[4:]),
		Length:  binary.LittleEndian.Uint32(b[8:]),
		Unused:  binary.LittleEndian.Uint32(b[12:]),
	}
	switch {
	case b[0] != version:
		return refuse("version", uint64(b[0]), version)
	case f.Kind < Data || f.Kind > lastKind:
		return refuse("kind", uint64(f.Kind), uint64(Data))
	case b[2]&^frameMore|b[3] != 0:
		return refuse("flags", uint64(binary.LittleEndian.Uint16(b[2:])), frameMore)
	case f.Unused != 0 && f.Kind != Return:
		return refuse("unused credits", uint64(f.Unused), 0)
	case total > len(b):
		return refuse("length of the message", uint64(total), uint64(len(b)))
	case uint64(f.Length) != uint64(total-FrameSize):
		return refuse("length of payload", uint64(f.Length), uint64(total-FrameSize))
	case f.Kind == Large && f.Length != SourceSize:
		return refuse("length of a source", uint64(f.Length), SourceSize)
	case f.Kind != Data && f.Kind != Large && f.Length != 0:
		return refuse("length of a control frame", uint64(f.Length), 0)
	case f.Kind == First && f.Credits != 0:
		return refuse("credits of a first frame", uint64(f.Credits), 0)
	case f.Kind == Credit && f.Credits == 0:
		return refuse("credits of a credit update", 0, 1)
	}
	return f, nil
}
