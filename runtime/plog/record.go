package plog

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// record is the header of a record in a lane.
type record struct {
	position   uint64 // in lines since the lane was made; it is the record's sequence number
	generation uint64
	length     int // of the payload
	lane       int
	kind       kind
}

// linesOf returns the lines of a record with n bytes of payload.
func linesOf(n int) uint64 { return uint64(recordHeader+n+LineSize-1) / LineSize }

// lines returns how many lines the record takes of a ring. A pad takes the rest of the ring.
func (r *record) lines(ring uint64) uint64 {
	if r.kind == kindPad {
		return ring - r.position%ring
	}
	return linesOf(r.length)
}

// encode appends the record with its payload. The checksum covers everything behind it, and the log's
// id, so that neither a part of a record nor a record of another log is taken for one of this log.
func (r *record) encode(b []byte, id uint64, payload []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, id)
	b = binary.LittleEndian.AppendUint64(b, r.position)
	b = binary.LittleEndian.AppendUint64(b, r.generation)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint16(b, uint16(r.lane))
	b = binary.LittleEndian.AppendUint16(b, uint16(r.kind))
	b = append(b, payload...)
	binary.LittleEndian.PutUint64(b[at:], xxhash.Sum64(b[at:]))
	return b
}

// parseRecord copies the record at offset off of a ring into buf, which it grows, and returns it if
// it is whole: its fields are within bounds, and its checksum is right for the copy. The ring's bytes
// are not trusted, and the writer may change them at any time, so that only the copy is looked at.
func parseRecord(ring []byte, off int, id uint64, buf []byte) (r record, copied []byte, ok bool) {
	rest := ring[off:]
	if len(rest) < recordHeader {
		return r, buf, false
	}
	buf = append(buf[:0], rest[:recordHeader]...)
	n := binary.LittleEndian.Uint32(buf[24:])
	r = record{
		position: binary.LittleEndian.Uint64(buf[8:]), generation: binary.LittleEndian.Uint64(buf[16:]), length: int(n),
		lane: int(binary.LittleEndian.Uint16(buf[28:])), kind: kind(binary.LittleEndian.Uint16(buf[30:])),
	}
	switch {
	case uint64(n) > uint64(min(len(rest)-recordHeader, maxRecord(len(ring)))):
		return r, buf, false
	case r.kind == kindPad && (n != 0 || off == 0), r.kind == kindVoid && n != 0, r.kind < kindData || r.kind > kindVoid:
		return r, buf, false
	}
	buf = append(buf, rest[recordHeader:recordHeader+int(n)]...)
	sum := binary.LittleEndian.Uint64(buf)
	binary.LittleEndian.PutUint64(buf, id)
	return r, buf, sum == xxhash.Sum64(buf)
}

// span is a range of a ring in bytes.
type span struct{ off, n int }

// spans returns the parts of a ring that hold the lines from a position to another: none, one, or two
// where they pass the ring's end.
func (l layout) spans(from, to uint64) []span {
	if from == to {
		return nil
	}
	first, n := from%l.lines(), to-from
	if first+n <= l.lines() {
		return []span{{int(first) * LineSize, int(n) * LineSize}}
	}
	end := l.lines() - first
	return []span{{int(first) * LineSize, int(end) * LineSize}, {0, int(n-end) * LineSize}}
}

// open returns the parts of a ring that a writer may write, whose records begin at claimed, while the lane
// keeps the records from head on. That is everything but the records of earlier writers: one part, two,
// or none. It grows with head.
func (l layout) open(claimed, head uint64) []span {
	if head >= claimed {
		return []span{{0, l.laneSize}}
	}
	return l.spans(claimed, head+l.lines())
}
