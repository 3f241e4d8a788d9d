package plog

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	uatomic "go.uber.org/atomic"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Access is the access that a log's region needs. It has no remote access of its own: windows on its lanes
// give writers theirs, and a peer who guesses the region's key reaches nothing by it.
const Access = verbs.AccessLocalWrite | verbs.AccessFlushPersistent | verbs.AccessMWBind

// medium is the memory of a log: a region on a file. Tests simulate one that loses power.
type medium interface {
	// Bytes returns all bytes.
	Bytes() []byte
	// Sync makes a range persistent, and returns when it is.
	Sync(off, n int) error
}

// Log is the server's side of a log: it lends lanes to writers (Serve), reads what they have written
// (Reader), and frees it (Reader.Trim). Methods may be called from any goroutine.
type Log struct {
	m      medium
	region *verbena.Region // m; nil in tests of the state machine
	layout
	lanes []lane

	// failed is why bytes could not be made persistent. Written once, by the first who sees it; read by
	// all. It publishes nothing else.
	failed uatomic.Error
}

// lane is the server's view of a lane.
type lane struct {
	mu    sync.Mutex // guards the fields below, and the lane's slots; held while bytes are made persistent
	state state
	held  bool // a connection may write the lane
	// kept is the position before which readers and claim have made everything persistent. No reader is
	// beyond it, and the next writer does not begin before it, whatever the last one has done to its
	// records meanwhile.
	kept uint64
	buf  []byte // for copies of records
}

// Create makes a new log in the region, which must be made by NewFileRegion with [Access]. A log that
// the region had is lost. Create blocks until the new one is persistent. Should the machine fail
// before, the region has no log.
//
// The log uses the region until the program closes it. No other Log, in this process or another, may
// use the same file at the same time.
//
// Errors: [ErrGeometry]; those of Region.Sync.
func Create(r *verbena.Region, c Config) (*Log, error) {
	l, err := create(r, c, draw())
	if err != nil {
		return nil, err
	}
	l.region = r
	return l, nil
}

// draw returns a random number that cannot be guessed.
func draw() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Open opens the log in the region, which must be made by NewFileRegion with [Access]. Its records are
// those that were acknowledged, and perhaps some that were written and not acknowledged. It does not
// change the log. A later [Log.Reader] or [Log.Serve] does, and may block for the disk.
//
// For the use of the region see [Create]. Errors: [ErrNoLog]; [ErrCorrupt]; [ErrGeometry] for a header
// that does not fit the region.
func Open(r *verbena.Region) (*Log, error) {
	l, err := open(r)
	if err != nil {
		return nil, err
	}
	l.region = r
	return l, nil
}

// create makes a log in three steps. Each is persistent before the next begins: first there is no log
// any more; then the lanes are in order; then there is a log.
func create(m medium, c Config, id uint64) (*Log, error) {
	b := m.Bytes()
	geometry, err := c.validate(len(b))
	if err != nil {
		return nil, err
	}
	geometry.id = id
	clear(b[:headerSize])
	if err := m.Sync(0, headerSize); err != nil {
		return nil, err
	}
	empty := state{sequence: slots}
	for i := range geometry.lanes {
		empty.encode(b[geometry.slot(i, 0):], id) // slot 1 is not whole for this id
	}
	if err := m.Sync(headerSize, geometry.lanes*slots*slotSize); err != nil {
		return nil, err
	}
	geometry.encode(b)
	if err := m.Sync(0, headerSize); err != nil {
		return nil, err
	}
	return open(m)
}

func open(m medium) (*Log, error) {
	b := m.Bytes()
	geometry, err := parseHeader(b)
	if err != nil {
		return nil, err
	}
	l := &Log{m: m, layout: geometry, lanes: make([]lane, geometry.lanes)}
	for i := range l.lanes {
		found := false
		for k := range slots {
			s, ok := parseSlot(b[l.slot(i, k):][:slotSize], l.id, l.lines())
			if ok && s.sequence%slots == uint64(k) && (!found || s.sequence > l.lanes[i].state.sequence) {
				l.lanes[i].state, found = s, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%w: lane %d has no whole state", ErrCorrupt, i)
		}
		l.lanes[i].kept = max(l.lanes[i].state.head, l.lanes[i].state.claimed)
	}
	return l, nil
}

// Lanes returns the number of lanes.
func (l *Log) Lanes() int { return l.layout.lanes }

// MaxRecord returns the size in bytes of the largest record.
func (l *Log) MaxRecord() int { return l.maxRecord() }

// lane returns a lane by its number.
func (l *Log) lane(i int) (*lane, error) {
	if i < 0 || i >= len(l.lanes) {
		return nil, fmt.Errorf("%w: %d of %d", ErrLane, i, len(l.lanes))
	}
	return &l.lanes[i], nil
}

// ringOf returns the bytes of a lane's ring.
func (l *Log) ringOf(i int) []byte { return l.m.Bytes()[l.ring(i):][:l.laneSize] }

// sync makes bytes persistent. If that fails, the log fails: the system may have dropped what it could
// not write, and a second attempt would succeed without it.
func (l *Log) sync(off, n int) error {
	if err := l.failed.Load(); err != nil {
		return err
	}
	if err := l.m.Sync(off, n); err != nil {
		err = fmt.Errorf("%w: %w", ErrFailed, err)
		l.failed.CompareAndSwap(nil, err)
		return err
	}
	return nil
}

// keep makes the records of a lane from a position to another persistent.
func (l *Log) keep(i int, from, to uint64) error {
	for _, s := range l.spans(from, to) {
		if err := l.sync(l.ring(i)+s.off, s.n); err != nil {
			return err
		}
	}
	return nil
}

// change makes s the state of a lane, persistently. Until then the other slot has the state: one of
// them is whole at any time. The caller holds the lane's mutex.
func (l *Log) change(i int, s state) error {
	if s.sequence = l.lanes[i].state.sequence + 1; s.sequence > maxSequence {
		return fmt.Errorf("%w: lane %d has had all the changes of its state", ErrFull, i)
	}
	at := l.slot(i, int(s.sequence%slots))
	s.encode(l.m.Bytes()[at:], l.id)
	if err := l.sync(at, slotSize); err != nil {
		return err
	}
	l.lanes[i].state = s
	return nil
}

// claim prepares a lane for a new writer, and returns the lane's state, with which the writer begins
// at state.claimed. It fails if a connection may still write the lane. The caller draws the new writer's
// generation, which earlier writers must not be able to guess.
//
// The order of its two persistent steps matters. The state says that all records before the new
// writer's are whole; so these are made persistent first. Some of them may have been written by the
// last writer and never flushed.
//
// The last writer may have changed its records after a reader had made them persistent. The new one
// begins behind these all the same: what is not whole there any more is filled.
func (l *Log) claim(i int, generation uint64) (s state, err error) {
	ln, err := l.lane(i)
	if err != nil {
		return s, err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.held {
		return s, fmt.Errorf("%w: lane %d", ErrLaneHeld, i)
	}
	s = ln.state
	last := max(s.head, s.claimed)
	c := cursor{log: l.layout, lane: i, state: s, at: last}
	ln.buf = c.to(l.ringOf(i), ln.buf, ln.kept)
	for ; c.at < ln.kept; c.at++ {
		void := record{position: c.at, generation: s.generation, lane: i, kind: kindVoid}
		void.encode(l.ringOf(i)[int(c.at%l.lines())*LineSize:][:0], l.id, nil)
	}
	var tail uint64
	tail, ln.buf = c.tail(l.ringOf(i), ln.buf)
	if tail > maxPosition {
		return s, fmt.Errorf("%w: lane %d has had all its positions", ErrFull, i)
	}
	if err := l.keep(i, last, tail); err != nil {
		return s, err
	}
	s.claimed, s.generation = tail, generation
	if err := l.change(i, s); err != nil {
		return s, err
	}
	ln.held, ln.kept = true, tail
	return ln.state, nil
}

// release ends a claim. The caller knows that the connection cannot write the lane any more.
func (l *Log) release(i int) {
	ln := &l.lanes[i]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.held = false
}

// headOf returns the position of the oldest record that a lane keeps.
func (l *Log) headOf(i int) uint64 {
	ln := &l.lanes[i]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.state.head
}
