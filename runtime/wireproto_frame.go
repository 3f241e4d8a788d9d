package runtime

import "encoding/binary"

// frame is the header of every message in credit mode:
//
//	0       1     2      4        8        12        16
//	┌───────┬─────┬──────┬────────┬────────┬─────────┬─────────┐
//	│version│kind │flags │credits │length  │0, for 4 │payload  │
//	└───────┴─────┴──────┴────────┴────────┴─────────┴─────────┘
//
// 16 bytes, so that a payload behind it keeps the alignment of its buffer.
type frame struct {
	kind    frameKind
	credits uint32 // receives that the sender posted again: the receiver may send so many more
	length  uint32 // bytes of payload; always 0 in a credit update
}

// frameKind is what a frame carries.
type frameKind uint8

const (
	frameData   frameKind = 1 // a message
	frameCredit frameKind = 2 // nothing but credits
)

const frameSize = 16

// encode writes the header. It does not allocate.
func (f frame) encode(b *[frameSize]byte) {
	b[0], b[1], b[2], b[3] = protoVersion, uint8(f.kind), 0, 0
	binary.LittleEndian.PutUint32(b[4:], f.credits)
	binary.LittleEndian.PutUint32(b[8:], f.length)
	binary.LittleEndian.PutUint32(b[12:], 0)
}

// parseFrame reads the header of a message of total bytes (what the completion
// says), which stands at the beginning of b. Only an error allocates. The
// number of credits is for the caller to judge, who knows what went before.
func parseFrame(b []byte, total int) (frame, error) {
	refuse := func(field string, have, want uint64) (frame, error) {
		return frame{}, &ProtocolError{Message: "frame", Field: field, Have: have, Want: want}
	}
	if total < frameSize || len(b) < frameSize {
		return refuse("length of the message", uint64(max(min(total, len(b)), 0)), frameSize)
	}
	f := frame{
		kind:    frameKind(b[1]),
		credits: binary.LittleEndian.Uint32(b[4:]),
		length:  binary.LittleEndian.Uint32(b[8:]),
	}
	switch {
	case b[0] != protoVersion:
		return refuse("version", uint64(b[0]), protoVersion)
	case f.kind != frameData && f.kind != frameCredit:
		return refuse("kind", uint64(f.kind), uint64(frameData))
	case b[2]|b[3] != 0:
		return refuse("flags", uint64(binary.LittleEndian.Uint16(b[2:])), 0)
	case nonZero(b[12:frameSize]) >= 0:
		return refuse("reserved word", uint64(binary.LittleEndian.Uint32(b[12:])), 0)
	case total > len(b):
		return refuse("length of the message", uint64(total), uint64(len(b)))
	case uint64(f.length) != uint64(total-frameSize):
		return refuse("length of payload", uint64(f.length), uint64(total-frameSize))
	case f.kind == frameCredit && f.length != 0:
		return refuse("length of a credit update", uint64(f.length), 0)
	case f.kind == frameCredit && f.credits == 0:
		return refuse("credits of a credit update", 0, 1)
	}
	return f, nil
}
