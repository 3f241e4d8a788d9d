package proto

import "encoding/binary"

// Source describes the memory of a large message to the peer, which reads it:
//
//	0         8        12       16
//	┌─────────┬────────┬────────┐
//	│address  │length  │key     │
//	└─────────┴────────┴────────┘
type Source struct {
	Addr   uint64
	Length uint32 // bytes; not 0
	Key    uint32 // of a window that the answer to the message invalidates
}

// SourceSize is the size of a Source in bytes.
const SourceSize = 16

// Encode writes s. It does not allocate.
func (s Source) Encode(b *[SourceSize]byte) {
	binary.LittleEndian.PutUint64(b[0:], s.Addr)
	binary.LittleEndian.PutUint32(b[8:], s.Length)
	binary.LittleEndian.PutUint32(b[12:], s.Key)
}

// ParseSource reads the payload of a frame of kind Large, which ParseFrame has accepted. most is the length
// in bytes of the largest message that the reader takes.
func ParseSource(b []byte, most int) (Source, *Malformed) {
	s := Source{
		Addr:   binary.LittleEndian.Uint64(b[0:]),
		Length: binary.LittleEndian.Uint32(b[8:]),
		Key:    binary.LittleEndian.Uint32(b[12:]),
	}
	if s.Length == 0 || uint64(s.Length) > uint64(max(most, 0)) {
		return Source{}, &Malformed{Message: "frame", Field: "length of a large message", Have: uint64(s.Length), Want: uint64(max(most, 0))}
	}
	return s, nil
}
