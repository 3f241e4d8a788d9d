package reactor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Record is what a queue's recorder has of one work request.
//
//	Submitted ──> Posted ──────────> Ended      what the device took
//	    └──────────────────────────> Ended      what never reached it: Err says why
type Record struct {
	WRID     uint64
	Kind     Kind
	Opcode   verbs.WROpcode // of a send
	Signaled bool           // it has a completion of its own even if it succeeds
	Bytes    uint32         // of the request; of a receive that succeeded, received
	// Submitted is when its submitter had it ready; zero for a marker, which the reactor
	// posts itself. Posted is when the turn that posted it began to; zero: none did.
	// Ended is when the turn that found it completed had polled; zero: it is out.
	// Requests posted or polled by one turn have the same time.
	Submitted, Posted, Ended time.Time
	// Err is how it ended: nil for a success, and while it is out. See Status.
	Err error
}

// Status is how a request ended whose completion said so, or which succeeded; false for one
// that is out, or ended without a completion.
func (c Record) Status() (verbs.WCStatus, bool) {
	if c.Ended.IsZero() {
		return 0, false
	}
	if c.Err == nil {
		return verbs.WCSuccess, true
	}
	if e, ok := errors.AsType[*verbs.WCError](c.Err); ok {
		return e.Status, true
	}
	return 0, false
}

// String is one line: what it was, its times, and how it ended.
func (c Record) String() string {
	var b strings.Builder
	what := any(c.Kind)
	if c.Kind != KindRecv {
		what = c.Opcode
	}
	fmt.Fprintf(&b, "%v of %d bytes, wr_id %#x", what, c.Bytes, c.WRID)
	if c.Signaled {
		b.WriteString(", signaled")
	}
	var last time.Time
	for _, s := range []struct {
		name string
		at   time.Time
	}{{"submitted", c.Submitted}, {"posted", c.Posted}, {"ended", c.Ended}} {
		switch {
		case s.at.IsZero():
			continue
		case last.IsZero():
			fmt.Fprintf(&b, ", %s %s", s.name, s.at.Format("15:04:05.000000"))
		default:
			fmt.Fprintf(&b, ", %s %v later", s.name, s.at.Sub(last))
		}
		last = s.at
	}
	switch {
	case c.Ended.IsZero():
		b.WriteString(": out")
	case c.Err == nil:
		b.WriteString(": ok")
	default:
		fmt.Fprintf(&b, ": %v", c.Err)
	}
	return b.String()
}

// Recorded is what the queue's recorder has; nil without one (QueueConfig.Recorder). First
// what has ended, in that order: the last Recorder at least. Then what is out: sends in the
// order they were posted, then receives. What was submitted and waits for a turn is not in
// it. It is a copy, and works while the queue runs, when it failed, and after Release. It
// takes the turn for a moment; not from the turn. Any goroutine.
func (q *Queue) Recorded() (all []Record) {
	if q.rec == nil {
		return nil
	}
	q.r.withTurn(func() { all = q.records() })
	return all
}

// records is Recorded for the holder.
func (q *Queue) records() []Record {
	c := q.rec
	all := make([]Record, 0, len(c.ring)+q.order.len()+q.recvs)
	if c.full {
		all = q.endings(all, c.ring[c.next:])
	}
	all = q.endings(all, c.ring[:c.next])
	for at := q.order.head; at != q.order.tail; at++ {
		all = append(all, q.outRecord(q.order.at[at&q.order.mask]))
	}
	recvs := len(all)
	for i := q.cfg.sends(); i < len(q.tab.slots); i++ {
		if q.tab.slots[i].posted {
			all = append(all, q.outRecord(uint32(i)))
		}
	}
	slices.SortStableFunc(all[recvs:], func(a, b Record) int { return a.Posted.Compare(b.Posted) })
	return all
}

func (q *Queue) endings(all []Record, es []ending) []Record {
	for i := range es {
		all = append(all, q.record(&es[i]))
	}
	return all
}

// outRecord is the record of a slot that is out.
func (q *Queue) outRecord(i uint32) Record {
	sl := &q.tab.slots[i]
	return q.record(&ending{q.rec.out[i], packWRID(q.id, i, sl.gen, sl.kind), notSeen, nil, q.tab.bytes[i], verbs.WROpcode(sl.opcode), sl.kind})
}

func (q *Queue) record(e *ending) Record {
	when := func(d time.Duration) time.Time {
		if d == notSeen {
			return time.Time{}
		}
		return q.r.timers.base.Add(d)
	}
	return Record{
		WRID: e.id, Kind: e.kind, Opcode: e.opcode, Signaled: e.signaled, Bytes: e.bytes,
		Submitted: when(e.submitted), Posted: when(e.posted), Ended: when(e.ended), Err: e.err,
	}
}
