package plog

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// LineSize is the unit of the format in bytes, that of a cache line: everything that is made
// persistent by itself begins at a multiple of it.
const LineSize = 64

const (
	magic   = "VRBNPLOG"
	version = 2

	headerSize = LineSize // the header has a line of its own
	slotSize   = LineSize // and so has each slot
	slots      = 2        // of a lane's state
	// dataAlign keeps the rings off the pages of the states, so that making one persistent by msync
	// does not write the other.
	dataAlign = 4096

	recordHeader = 32
)

// Limits of a log. They bound what a hostile file makes a reader do, and keep positions, sizes and
// the changes of a state far from overflow.
const (
	MaxLanes    = 1024
	MaxLaneSize = 1 << 30
	maxPosition = 1 << 56
	maxSequence = 1 << 56
)

// kind is what a record is.
type kind uint16

const (
	kindData kind = 1
	kindPad  kind = 2 // fills the ring up to its end; no payload
	kindVoid kind = 3 // one line, which the server has put in place of what a writer took back; no payload
)

// Config describes a new log.
type Config struct {
	// Lanes is the number of writers that the log has space for; 4 by default, at most MaxLanes.
	Lanes int
	// LaneSize is the size in bytes of the ring of each lane: a multiple of LineSize, from 2 lines to
	// MaxLaneSize. The default is what the region has, divided evenly.
	LaneSize int
}

// defaultLanes is the default of Config.Lanes.
const defaultLanes = 4

// layout is the geometry of a log, all of it in its header.
type layout struct {
	lanes    int
	laneSize int
	id       uint64 // a random number; records of other logs have others
}

// validate fills in the defaults of c for a region of size bytes.
func (c Config) validate(size int) (layout, error) {
	l := layout{lanes: c.Lanes, laneSize: c.LaneSize}
	if l.lanes == 0 {
		l.lanes = defaultLanes
	}
	if l.laneSize == 0 && l.lanes > 0 && l.lanes <= MaxLanes {
		l.laneSize = min(MaxLaneSize, max(0, size-dataOffset(l.lanes))/l.lanes&^(LineSize-1))
	}
	return l, l.check(size)
}

// check returns an error unless a log of this layout fits into size bytes.
func (l layout) check(size int) error {
	switch {
	case l.lanes < 1 || l.lanes > MaxLanes:
		return fmt.Errorf("%w: %d lanes, want 1 to %d", ErrGeometry, l.lanes, MaxLanes)
	case !l.sound():
		return fmt.Errorf("%w: lanes of %d bytes, want a multiple of %d from %d to %d", ErrGeometry, l.laneSize, LineSize, 2*LineSize, MaxLaneSize)
	case l.size() > uint64(size):
		return fmt.Errorf("%w: %d lanes of %d bytes need %d bytes, the region has %d", ErrGeometry, l.lanes, l.laneSize, l.size(), size)
	}
	return nil
}

// sound reports whether a lane may have this size.
func (l layout) sound() bool {
	return l.laneSize >= 2*LineSize && l.laneSize <= MaxLaneSize && l.laneSize%LineSize == 0
}

func dataOffset(lanes int) int {
	return (headerSize + lanes*slots*slotSize + dataAlign - 1) &^ (dataAlign - 1)
}

// size returns the size of a log in bytes. Until check has compared it, it may be too large for an int.
func (l layout) size() uint64 {
	return uint64(dataOffset(l.lanes)) + uint64(l.lanes)*uint64(l.laneSize)
}

// slot returns the offset of a slot of a lane's state.
func (l layout) slot(lane, i int) int { return headerSize + (lane*slots+i)*slotSize }

// ring returns the offset of a lane's ring.
func (l layout) ring(lane int) int { return dataOffset(l.lanes) + lane*l.laneSize }

// lines returns the number of lines of a ring.
func (l layout) lines() uint64 { return uint64(l.laneSize / LineSize) }

// maxRecord returns the largest payload. A record of half a ring finds space in an empty ring wherever
// it begins: a pad in front of it is shorter than the record.
func (l layout) maxRecord() int { return maxRecord(l.laneSize) }

func maxRecord(laneSize int) int { return laneSize/2/LineSize*LineSize - recordHeader }

// encode writes the header.
func (l layout) encode(b []byte) {
	clear(b[:headerSize])
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], uint32(l.lanes))
	binary.LittleEndian.PutUint64(b[16:], uint64(l.laneSize))
	binary.LittleEndian.PutUint64(b[24:], l.id)
	binary.LittleEndian.PutUint64(b[56:], xxhash.Sum64(b[:56]))
}

// parseHeader reads the header of a region. The bytes are not trusted.
func parseHeader(b []byte) (l layout, err error) {
	if len(b) < headerSize {
		return l, fmt.Errorf("%w: a region of %d bytes", ErrNoLog, len(b))
	}
	h := b[:headerSize]
	if string(h[:8]) != magic {
		return l, fmt.Errorf("%w: it begins with %q", ErrNoLog, h[:8])
	}
	if have, want := binary.LittleEndian.Uint64(h[56:]), xxhash.Sum64(h[:56]); have != want {
		return l, fmt.Errorf("%w: the header has the checksum 0x%016x, want 0x%016x", ErrNoLog, have, want)
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != version {
		return l, fmt.Errorf("%w: of version %d, only %d is known", ErrNoLog, v, version)
	}
	size := binary.LittleEndian.Uint64(h[16:])
	l = layout{lanes: int(binary.LittleEndian.Uint32(h[12:])), laneSize: int(min(size, MaxLaneSize+1)), id: binary.LittleEndian.Uint64(h[24:])}
	return l, l.check(len(b))
}

// state is the state of a lane. Each change writes the slot that does not have the current one.
type state struct {
	sequence   uint64 // of the change; slot sequence%slots has it
	head       uint64 // position of the oldest record that is kept
	claimed    uint64 // position where the last writer began; all before it was whole and persistent
	generation uint64 // of the last writer, a random number; its records have it
}

func (s *state) encode(b []byte, id uint64) {
	clear(b[:slotSize])
	binary.LittleEndian.PutUint64(b[0:], id)
	binary.LittleEndian.PutUint64(b[8:], s.sequence)
	binary.LittleEndian.PutUint64(b[16:], s.head)
	binary.LittleEndian.PutUint64(b[24:], s.claimed)
	binary.LittleEndian.PutUint64(b[32:], s.generation)
	sum := xxhash.Sum64(b[:40])
	binary.LittleEndian.PutUint64(b[0:], sum) // in place of the id, which it covers
}

// parseSlot reads a slot, and reports whether it is whole and can be true.
func parseSlot(b []byte, id uint64, lines uint64) (s state, ok bool) {
	var h [40]byte
	copy(h[:], b)
	sum := binary.LittleEndian.Uint64(h[:])
	binary.LittleEndian.PutUint64(h[:], id)
	s = state{
		sequence: binary.LittleEndian.Uint64(h[8:]), head: binary.LittleEndian.Uint64(h[16:]),
		claimed: binary.LittleEndian.Uint64(h[24:]), generation: binary.LittleEndian.Uint64(h[32:]),
	}
	ok = sum == xxhash.Sum64(h[:]) && s.sequence <= maxSequence && s.head <= maxPosition && s.claimed <= maxPosition &&
		(s.claimed <= s.head || s.claimed-s.head <= lines)
	return s, ok
}
