package reactor

import (
	"fmt"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Stuck is a send that has been outstanding for a long time. For a queue with a recorder,
// Reactor.Stuck reports every such send, with its times. For a queue without a recorder it reports
// only the oldest send, because it knows only how long the queue has completed no send. It reports
// no receives, because they wait for messages.
type Stuck struct {
	Record      // without a recorder Submitted and Posted are zero
	Queue       *Queue
	QPNum       uint32
	Position    int // how many outstanding sends of the queue are before it
	Outstanding int // outstanding sends of the queue
	Waiting     int // goroutines that wait for a slot of the queue
	// If Exact is set, Since is when the send was submitted (a marker: posted). Otherwise Since is
	// an upper bound: the send was outstanding at this time, and perhaps earlier. For a queue with
	// a PeerLimit.Bound, the error is at most an eighth of the smallest Bound on the reactor; for
	// other queues, the interval between calls of Reactor.Stuck.
	Since time.Time
	Exact bool
}

// String returns one line.
func (s Stuck) String() string {
	how := "at least since"
	if s.Exact {
		how = "since"
	}
	return fmt.Sprintf("QP %d, %d of %d out, %d waiting for room: %s %s: %v", s.QPNum, s.Position+1, s.Outstanding, s.Waiting,
		how, s.Since.Format("15:04:05.000000"), s.Record)
}

// progressMark is what a call of Stuck saw of a queue without a recorder. Holder only.
type progressMark struct {
	head uint32        // fifo.head: it changes when a send ends
	at   time.Duration // when Stuck first saw this value of head with sends outstanding
	busy bool          // head and at are valid
}

// Stuck returns the sends that have been outstanding for at least the duration longer, sorted by
// Since. It first runs passes until the waiting completions are polled, so that it reports no
// completed send. It visits every queue and allocates, so it is for diagnosis and monitoring. It
// waits for the turn: any goroutine may call it, except the holder.
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

// stuck appends the stuck sends of q, which has sends outstanding. Holder only.
func (q *Queue) stuck(all []Stuck, now, longer time.Duration) []Stuck {
	if q.rec == nil {
		if since := q.oldestSince(now); now-since >= longer {
			all = append(all, q.stuckAt(0, since, false))
		}
		return all
	}
	for k := range q.order.len() {
		s := &q.rec.times[q.at(k)]
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

// at returns the slot of the k-th outstanding send.
func (q *Queue) at(k int) uint32 { return q.order.at[(q.order.head+uint32(k))&q.order.mask] }

func (q *Queue) stuckAt(k int, since time.Duration, exact bool) Stuck {
	i := q.at(k)
	s := Stuck{Queue: q, QPNum: q.qpn, Position: k, Outstanding: q.order.len(), Waiting: q.sendFree.Waiting(),
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

// oldestSince returns a time at which the queue's oldest send was outstanding already: when the
// watchdog or a call of Stuck first saw this send, at the latest now.
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
