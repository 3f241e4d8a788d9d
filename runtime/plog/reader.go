package plog

import "fmt"

// Record is a record of a log.
type Record struct {
	Lane     int
	Position uint64 // grows with each record of the lane; no two records of a lane have the same
	Payload  []byte // the caller's
}

// Reader reads the records of a lane, from the oldest one that is kept. A lane may have several readers, and a
// writer at the same time. A reader is used by one goroutine at a time.
type Reader struct {
	l         *Log
	lane      int
	at        uint64
	persisted uint64 // the records before it have been made persistent
}

// Reader returns a reader of a lane. Errors: [ErrLane].
func (l *Log) Reader(lane int) (*Reader, error) {
	if _, err := l.lane(lane); err != nil {
		return nil, err
	}
	head := l.headOf(lane)
	return &Reader{l: l, lane: lane, at: head, persisted: head}, nil
}

// Next returns the next record. It reports false if there is none, or none that is whole yet: a later
// call may find it. A record that Next returns is persistent, even if its writer has not flushed it:
// no failure takes it back.
//
// Next copies the record. It blocks for the disk if it meets records for the first time. Errors:
// [ErrCorrupt]; [ErrFailed]; [ErrTrimmed] if another reader has freed the record.
func (r *Reader) Next() (rec Record, ok bool, err error) {
	l := r.l
	ln := &l.lanes[r.lane]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if r.at < ln.state.head {
		return rec, false, fmt.Errorf("%w: lane %d at %d, its records begin at %d", ErrTrimmed, r.lane, r.at, ln.state.head)
	}
	ring := l.ringOf(r.lane)
	if r.at >= r.persisted {
		c := r.cursor()
		var tail uint64
		if tail, ln.buf = c.tail(ring, ln.buf); tail < ln.state.claimed {
			return rec, false, fmt.Errorf("%w: lane %d: the record at %d is not whole", ErrCorrupt, r.lane, tail)
		}
		if err := l.keep(r.lane, r.at, tail); err != nil {
			return rec, false, err
		}
		r.persisted = tail
	}
	for c := r.cursor(); r.at < r.persisted; r.at = c.at {
		var found record
		if found, ln.buf, ok = c.next(ring, ln.buf); !ok {
			return rec, false, fmt.Errorf("%w: lane %d: the record at %d was changed", ErrCorrupt, r.lane, r.at)
		}
		if found.kind == kindData {
			r.at = c.at
			return Record{Lane: r.lane, Position: found.position, Payload: append([]byte(nil), ln.buf[recordHeader:]...)}, true, nil
		}
	}
	return rec, false, nil
}

// cursor returns a cursor at the reader. The caller holds the lane's mutex.
func (r *Reader) cursor() cursor {
	return cursor{log: r.l.layout, lane: r.lane, state: r.l.lanes[r.lane].state, at: r.at}
}

// Trim frees the records that Next has returned: the lane does not keep them any more, and their space
// is the writer's. It blocks for the disk. Errors: [ErrFailed].
func (r *Reader) Trim() error {
	ln := &r.l.lanes[r.lane]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	s := ln.state
	if r.at <= s.head {
		return nil
	}
	s.head = r.at
	return r.l.change(r.lane, s)
}
