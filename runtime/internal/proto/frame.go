package proto

import "encoding/binary"

// Frame is the header of every message in credit mode:
//
//	0       1     2      4        8        12       16
//	┌───────┬─────┬──────┬────────┬────────┬────────┬─────────┐
//	│version│kind │flags │credits │length  │number  │payload  │
//	└───────┴─────┴──────┴────────┴────────┴────────┴─────────┘
//
// The header has 16 bytes, so that the payload keeps the alignment of its buffer.
type Frame struct {
	Kind    Kind
	More    bool   // the sender has used its last credit: more credits are of use
	Credits uint32 // credits that the sender grants: the permission to send as many more messages
	Length  uint32 // bytes of payload; 0 except for Data and Large
	// Answer marks a Data or Large frame that answers the question with the Number.
	Answer bool
	// Number depends on the kind:
	//
	//	Data, Large  the number of a question, which the sender of the question chooses; 0 for a message
	//	             that is neither a question nor an answer
	//	Recall       the most credits that the receiver of the frame shall give up; not 0
	//	Return       the credits that its sender gives up, in addition to the one that the frame itself uses
	//	others       0
	Number uint32
}

// Kind is the kind of a frame.
type Kind uint8

// Kinds of frames; no other is accepted. Data, Return and Large use a credit.
const (
	Data    Kind = 1 // a message
	Credit  Kind = 2 // only credits
	Recall  Kind = 3 // asks the receiver of the frame to give up unused credits; the next only after the Return
	Return  Kind = 4 // the answer to Recall
	Large   Kind = 5 // a message that the receiver of the frame reads; the payload is a Source
	Fetched Kind = 6 // the answer to Large: a SEND_WITH_INV with the key of the Source
	First   Kind = 7 // the first frame of the dialing end on iWARP; no other frame of this kind follows

	lastKind = First
)

// The flags of a frame.
const (
	frameMore   = 1 << 0 // Frame.More
	frameAnswer = 1 << 1 // Frame.Answer
)

// FrameSize is the size of a header in bytes.
const FrameSize = 16

// Encode writes the header. It does not allocate.
func (f Frame) Encode(b *[FrameSize]byte) {
	b[0], b[1], b[2], b[3] = version, uint8(f.Kind), 0, 0
	if f.More {
		b[2] = frameMore
	}
	if f.Answer {
		b[2] |= frameAnswer
	}
	binary.LittleEndian.PutUint32(b[4:], f.Credits)
	binary.LittleEndian.PutUint32(b[8:], f.Length)
	binary.LittleEndian.PutUint32(b[12:], f.Number)
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
		Answer:  b[2]&frameAnswer != 0,
		Number:  binary.LittleEndian.Uint32(b[12:]),
	}
	message := f.Kind == Data || f.Kind == Large
	switch {
	case b[0] != version:
		return refuse("version", uint64(b[0]), version)
	case f.Kind < Data || f.Kind > lastKind:
		return refuse("kind", uint64(f.Kind), uint64(Data))
	case b[2]&^(frameMore|frameAnswer)|b[3] != 0:
		return refuse("flags", uint64(binary.LittleEndian.Uint16(b[2:])), frameMore|frameAnswer)
	case f.Answer && !message:
		return refuse("flags of a control frame", uint64(b[2]), frameMore)
	case f.Answer && f.Number == 0:
		return refuse("number of an answer", 0, 1)
	case f.Number == 0 && f.Kind == Recall:
		return refuse("credits to give up", 0, 1)
	case f.Number != 0 && !message && f.Kind != Recall && f.Kind != Return:
		return refuse("number of a control frame", uint64(f.Number), 0)
	case total > len(b):
		return refuse("length of the message", uint64(total), uint64(len(b)))
	case uint64(f.Length) != uint64(total-FrameSize):
		return refuse("length of payload", uint64(f.Length), uint64(total-FrameSize))
	case f.Kind == Large && f.Length != SourceSize:
		return refuse("length of a source", uint64(f.Length), SourceSize)
	case !message && f.Length != 0:
		return refuse("length of a control frame", uint64(f.Length), 0)
	case f.Kind == First && f.Credits != 0:
		return refuse("credits of a first frame", uint64(f.Credits), 0)
	case f.Kind == Credit && f.Credits == 0:
		return refuse("credits of a credit update", 0, 1)
	}
	return f, nil
}
