package reactor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Record is the flight recorder's entry for one work request.
//
//	Submitted ──> Posted ──────────> Ended      given to the device
//	    └──────────────────────────> Ended      never given to the device: Err is the reason
type Record struct {
	WRID     uint64
	Kind     Kind
	Opcode   verbs.WROpcode // of a send
	Signaled bool           // the request has a completion even if it succeeds
	Bytes    uint32         // length of the request; for a receive that succeeded, length of the message
	// Submitted is the time at which the submitter had filled the request. Submitted is zero for a
	// marker, which the reactor itself posts. Posted is the time at which the pass that posted the
	// request began to post. Posted is zero if the request was never given to the device. Ended is the
	// time at which the request ended: a completion ended it, the pass could not post it, or Release
	// ended it. Ended is zero if the request has not ended. All requests posted by one pass have the
	// same Posted (except a marker). All requests that the completions of one pass end have the same
	// Ended.
	Submitted, Posted, Ended time.Time
	// Err is the operation's error. It is nil if the request succeeded or has not ended. See
	// Status.
	Err error
}

// Status returns the completion status of a request: success, or the status of its failed
// completion. The second result is false if the request has not ended, or if it ended with an error
// that no completion reported.
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

// String returns one line: the request, its times, and its result.
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
		b.WriteString(": outstanding")
	case c.Err == nil:
		b.WriteString(": ok")
	default:
		fmt.Fprintf(&b, ": %v", c.Err)
	}
	return b.String()
}

// Recorded returns a copy of the entries of the queue's flight recorder. Without a recorder
// (QueueConfig.Recorder) it returns nil. The entries come in this order:
//
//   - The requests that have ended, in the order in which they ended: at least the last
//     QueueConfig.Recorder of them. Older requests are dropped.
//   - The outstanding sends, in posting order.
//   - The outstanding receives, sorted by Posted.
//
// A request that still waits to be posted has no entry.
//
// Recorded may also be called after the queue has failed, and after Release. Recorded waits for the
// turn and holds the turn for a moment. Any goroutine may call Recorded, except the holder.
func (q *Queue) Recorded() (all []Record) {
	if q.rec == nil {
		return nil
	}
	q.r.withTurn(func() { all = q.records() })
	return all
}

// records does the work of Recorded. Only the holder calls records.
func (q *Queue) records() []Record {
	c := q.rec
	all := make([]Record, 0, len(c.ring)+q.order.n+q.recvs)
	if c.full {
		all = q.endings(all, c.ring[c.next:])
	}
	all = q.endings(all, c.ring[:c.next])
	for i := range q.order.all() {
		all = append(all, q.outRecord(i))
	}
	recvs := len(all)
	for i := q.cfg.firstRecv(); i < q.cfg.slots(); i++ {
		if q.tab.posted(uint32(i)) != nil {
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

// outRecord returns the record of an outstanding request.
func (q *Queue) outRecord(i uint32) Record {
	sl := q.tab.slot(i)
	return q.record(&ending{q.rec.times[i], packWRID(q.id, i, sl.gen, sl.kind), notSeen, nil, q.tab.bytes(i), verbs.WROpcode(sl.opcode), sl.kind})
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
