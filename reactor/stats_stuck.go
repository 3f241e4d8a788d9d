package reactor

import (
	"fmt"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Stuck is a send that has been out for long; receives wait for their peers by nature. Of a
// queue with a recorder each such send is told, with its times. Of one without, only the
// oldest, because that is all the patrol knows: when it first saw a queue whose sends do not
// complete.
type Stuck struct {
	Record   // without a recorder Submitted and Posted are zero
	Queue    *Queue
	QPNum    uint32
	Position int // sends of the queue that are out before it, and must complete first
	Out      int // sends of the queue that are out
	Waiting  int // goroutines that wait for room in the queue
	// Since is from when on it was out. If Exact is set that is when it was submitted
	// (when a marker was posted); else it was out at this time, and may have been before:
	// by an eighth of the smallest Limit.Bound of the reactor, or without a limit, by as
	// much as the last call of Reactor.Stuck is ago.
	Since time.Time
	Exact bool
}

// String is one line.
func (s Stuck) String() string {
	how := "at least since"
	if s.Exact {
		how = "since"
	}
	return fmt.Sprintf("QP %d, %d of %d out, %d waiting for room: %s %s: %v", s.QPNum, s.Position+1, s.Out, s.Waiting,
		how, s.Since.Format("15:04:05.000000"), s.Record)
}

// progressMark is what Stuck saw of a queue without a recorder. The holder's.
type progressMark struct {
	head uint32        // sends ever retired
	at   time.Duration // when this was first seen, with sends out
	busy bool          // it was
}

// Stuck tells the sends that are out for that long or longer, those that are out longest
// first. What the device has completed is taken first, so that none of those is blamed: it
// makes turns, as a driver does. It looks at every queue and allocates: it is for people and
// watchdogs. Any goroutine, but not from the turn, which it waits for.
func (r *Reactor) Stuck(longer time.Duration) (all []Stuck) {
	r.withTurn(func() {
		r.Drain()
		now := r.clock()
		for _, q := range r.queues {
			if q != nil && q.order.len() > 0 {
				all = q.stuck(all, now, longer)
			}
		}
	})
	slices.SortStableFunc(all, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return all
}

// stuck adds the queue's, which has sends out. Holder only.
func (q *Queue) stuck(all []Stuck, now, longer time.Duration) []Stuck {
	if q.rec == nil {
		if since := q.oldestSince(now); now-since >= longer {
			all = append(all, q.stuckAt(0, since, false))
		}
		return all
	}
	for k := range q.order.len() {
		s := &q.rec.out[q.at(k)]
		since := s.submitted
		if since == notSeen {
			since = s.posted
		}
		if now-since >= longer {
			all = append(all, q.stuckAt(k, since, true))
		}
	}
	return all
}

// at is the slot of the k-th send that is out.
func (q *Queue) at(k int) uint32 { return q.order.at[(q.order.head+uint32(k))&q.order.mask] }

func (q *Queue) stuckAt(k int, since time.Duration, exact bool) Stuck {
	i := q.at(k)
	s := Stuck{Queue: q, QPNum: q.qpn, Position: k, Out: q.order.len(), Waiting: q.sendFree.Waiting(),
		Since: q.r.timers.base.Add(since), Exact: exact}
	if exact {
		s.Record = q.outRecord(i)
		return s
	}
	sl := &q.tab.slots[i]
	s.Record = Record{WRID: packWRID(q.id, i, sl.gen, sl.kind), Kind: sl.kind, Opcode: verbs.WROpcode(sl.opcode), Bytes: q.tab.bytes[i],
		Signaled: q.tab.sendWR[i].Flags&verbs.SendSignaled != 0}
	return s
}

// oldestSince is since when at the latest the queue's oldest send is out: since the patrol saw
// what it still sees, or an earlier Stuck, or now.
func (q *Queue) oldestSince(now time.Duration) time.Duration {
	if g := &q.progressMark; !g.busy || g.head != q.order.head {
		*g = progressMark{q.order.head, now, true}
	}
	since := q.progressMark.at
	if l := q.peerLimit; l != nil && l.busy && l.head == q.order.head {
		since = min(since, q.r.watchdog.last-l.silent)
	}
	return since
}
