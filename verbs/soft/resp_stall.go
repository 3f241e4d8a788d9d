package soft

import (
	"slices"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// The link takes a bounded number of packets (fabric.Port.Room). A queue pair that finds no room
// waits in line. Its pending work (requests, READ responses, acknowledgements) stays a position
// in a queue until there is room. So a peer that takes nothing occupies no more of this side's
// memory than the link's share, however much it requests.
//
//	            no room                       room, in order
//	working ──────────────> in line of a link ─────────────────> working
//	   ^                          │ reset, ERR, another route
//	   └──────────────────────────┘
//
// While a requester waits, its timer runs as if its packets were lost.

// stall is the queue pairs that wait for room on a link, first come, first served. It belongs to
// the engine.
type stall struct {
	route *fabric.Route
	qps   []*queuePair // from head on
	head  int
}

// allowance returns the number of packets q may send on its route in this Progress call.
func (q *queuePair) allowance() int { return min(emitPerProgress, q.dev.p.Room(q.route)) }

// yield postpones q: to the next Progress call, or until r has room again.
func (q *queuePair) yield(r *fabric.Route) {
	if q.dev.p.Room(r) > 0 {
		q.dev.activate(q)
		return
	}
	q.stallOn(r)
}

// stallOn puts q in the line of a link without room.
func (q *queuePair) stallOn(r *fabric.Route) {
	if q.stalled == r {
		return
	}
	q.unstall()
	q.stalled = r
	d := q.dev
	i := d.lineOf(r)
	if i < 0 {
		i = len(d.stalls)
		if i < cap(d.stalls) {
			d.stalls = d.stalls[:i+1] // reuses an old stall
		} else {
			d.stalls = append(d.stalls, nil)
		}
		if d.stalls[i] == nil {
			d.stalls[i] = &stall{}
		}
		d.stalls[i].route = r
	}
	s := d.stalls[i]
	if s.head > 0 && len(s.qps) == cap(s.qps) {
		s.qps, s.head = slices.Delete(s.qps, 0, s.head), 0
	}
	s.qps = append(s.qps, q)
}

// unstall takes q out of its line, if it waits in one.
func (q *queuePair) unstall() {
	if q.stalled == nil {
		return
	}
	d := q.dev
	at := d.lineOf(q.stalled)
	s := d.stalls[at]
	i := s.head + slices.Index(s.qps[s.head:], q)
	s.qps = slices.Delete(s.qps, i, i+1)
	q.stalled = nil
	d.endLine(at)
}

// lineOf returns the index of the line of a link, -1 when there is none.
func (d *device) lineOf(r *fabric.Route) int {
	return slices.IndexFunc(d.stalls, func(s *stall) bool { return s.route == r })
}

// endLine removes line i if it is empty, and reports whether it did. The stall is kept after the
// end of the list for reuse.
func (d *device) endLine(i int) bool {
	s, last := d.stalls[i], len(d.stalls)-1
	if s.head < len(s.qps) {
		return false
	}
	*s = stall{qps: s.qps[:0]}
	d.stalls[i], d.stalls[last] = d.stalls[last], s
	d.stalls = d.stalls[:last]
	return true
}

// resume continues the queue pairs whose links have room again.
func (d *device) resume() {
	for i := 0; i < len(d.stalls); {
		s := d.stalls[i]
		for s.head < len(s.qps) && d.p.Room(s.route) > 0 {
			q := s.qps[s.head]
			s.qps[s.head] = nil
			s.head++
			q.stalled = nil
			q.work() // may end the line: a queue pair that fails leaves it
		}
		if i < len(d.stalls) && d.stalls[i] == s && !d.endLine(i) {
			i++
		}
	}
}
