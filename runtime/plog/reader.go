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
	l    *Log
	lane int
	at   uint64
	// generation is that of the lane's writer when a record was known to begin at the position at. The
	// writer may change that until another one follows.
	generation uint64
}

// Reader returns a reader of a lane. Errors: [ErrLane].
func (l *Log) Reader(lane int) (*Reader, error) {
	if _, err := l.lane(lane); err != nil {
		return nil, err
	}
	ln := &l.lanes[lane]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return &Reader{l: l, lane: lane, at: ln.state.head, generation: ln.state.generation}, nil
}

// Next returns the next record. It reports false if there is none, or none that is whole yet: a later
// call may find it. A record that Next returns is persistent, even if its writer has not flushed it:
// no failure takes it back.
//
// Next copies the record. It blocks for the disk if it meets records for the first time. Errors:
// [ErrCorrupt], also for a record that its writer has changed after it was made persistent; the lane's
// next writer ends that. [ErrFailed]; [ErrTrimmed] if another reader has freed the record.
func (r *Reader) Next() (rec Record, ok bool, err error) {
	ln := &r.l.lanes[r.lane]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if r.at < ln.state.head {
		return rec, false, fmt.Errorf("%w: lane %d at %d, its records begin at %d", ErrTrimmed, r.lane, r.at, ln.state.head)
	}
	if err := r.follow(ln); err != nil {
		return rec, false, err
	}
	ring := r.l.ringOf(r.lane)
	for {
		c := r.cursor()
		if r.at == ln.kept {
			tail, buf := c.tail(ring, ln.buf)
			if ln.buf = buf; tail == r.at {
				return rec, false, nil
			}
			if err := r.l.keep(r.lane, r.at, tail); err != nil {
				return rec, false, err
			}
			ln.kept, c.at = tail, r.at
		}
		var found record
		if found, ln.buf, ok = c.next(ring, ln.buf); !ok || c.at > ln.kept {
			return rec, false, r.corrupt(r.at)
		}
		if r.at = c.at; found.kind == kindData {
			return Record{Lane: r.lane, Position: found.position, Payload: append([]byte(nil), ln.buf[recordHeader:]...)}, true, nil
		}
	}
}

// follow moves the reader to the next record's beginning, if the lane has had another writer since
// the reader was there. The last writer may have made other records of its own in the meantime, and
// these have other beginnings. The caller holds the lane's mutex.
func (r *Reader) follow(ln *lane) error {
	if r.generation == ln.state.generation {
		return nil
	}
	c := r.cursor()
	c.at = ln.state.head
	for c.at < r.at {
		var ok bool
		if _, ln.buf, ok = c.next(r.l.ringOf(r.lane), ln.buf); !ok {
			return r.corrupt(c.at)
		}
	}
	r.at, r.generation = c.at, ln.state.generation
	return nil
}

func (r *Reader) corrupt(at uint64) error {
	return fmt.Errorf("%w: lane %d: the record at %d is not whole", ErrCorrupt, r.lane, at)
}

// cursor returns a cursor at the reader. The caller holds the lane's mutex.
func (r *Reader) cursor() cursor {
	return cursor{log: r.l.layout, lane: r.lane, state: r.l.lanes[r.lane].state, at: r.at}
}

// Trim frees the records that Next has returned: the lane does not keep them any more, and their space
// is the writer's. It blocks for the disk. Errors: [ErrFailed]; [ErrFull] if the lane has had all the
// changes of its state; [ErrCorrupt].
func (r *Reader) Trim() error {
	ln := &r.l.lanes[r.lane]
	ln.mu.Lock()
	defer ln.mu.Unlock()
	s := ln.state
	if r.at <= s.head {
		return nil
	}
	if err := r.follow(ln); err != nil {
		return err
	}
	s.head = r.at
	return r.l.change(r.lane, s)
}
