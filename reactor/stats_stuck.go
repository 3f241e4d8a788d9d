package reactor

import (
	"fmt"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Stuck is a send that has been outstanding for a long time. For a queue with a recorder,
// Reactor.Stuck reports every such send, with its times. For a queue without a recorder, Reactor.Stuck
// reports only the oldest send, because the reactor does not record the times of single sends.
// Reactor.Stuck does not report receives, because a receive may wait any length of time for its
// message.
type Stuck struct {
	Record      // if the queue has no recorder, Submitted and Posted are zero
	Queue       *Queue
	QPNum       uint32
	Position    int // how many outstanding sends of the queue are older
	Outstanding int // how many sends of the queue are outstanding
	Waiting     int // how many goroutines wait for a slot of the queue
	// If Exact is true, Since is when the send was submitted. (For a marker, Since is when the marker
	// was posted.) If Exact is false, Since is when the reactor first saw that this send was the
	// oldest outstanding send of the queue. The send may have been submitted long before. If the queue
	// has a PeerLimit.Bound, the reactor sees a new oldest send within an eighth of the smallest Bound
	// on the reactor, plus any time in which the process did not run. Without a PeerLimit, only calls
	// of Reactor.Stuck look for the oldest send: the first call after the send became the oldest sets
	// Since to the time of the call.
	Since time.Time
	Exact bool // the queue has a recorder
}

// String describes s in one line.
func (s Stuck) String() string {
	how := "at least since"
	if s.Exact {
		how = "since"
	}
	return fmt.Sprintf("QP %d, %d of %d out, %d waiting for room: %s %s: %v", s.QPNum, s.Position+1, s.Outstanding, s.Waiting,
		how, s.Since.Format("15:04:05.000000"), s.Record)
}

// progressMark records the progress that the calls of Stuck have seen in a queue without a recorder.
// Only the holder uses a progressMark.
type progressMark struct {
	ended uint32        // the value of order.ended at the last call
	at    time.Duration // when a call of Stuck first saw this value of ended
	busy  bool          // the fields ended and at are valid
}

// Stuck returns the sends that have been outstanding for at least the given duration, sorted by Since.
// Stuck first polls all completions that are in the completion queues (Drain), so that it reports no
// completed send. Stuck visits every queue and allocates. It is for diagnosis and monitoring. Any
// goroutine except the holder may call Stuck. It waits for the turn.
func (r *Reactor) Stuck(longer time.Duration) (all []Stuck) {
	r.withTurn(func() {
		r.Drain()
		now := r.clock()
		for _, q := range r.queues {
			if q != nil && q.order.n > 0 {
				all = q.stuck(all, now, longer)
			}
		}
	})
	slices.SortStableFunc(all, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return all
}

// stuck appends the stuck sends of q to all, and returns the result. q must have outstanding sends.
// Only the holder calls stuck.
func (q *Queue) stuck(all []Stuck, now, longer time.Duration) []Stuck {
	if q.rec == nil {
		if since := q.oldestSince(now); now-since >= longer {
			all = append(all, q.stuckAt(q.order.first, 0, since, false))
		}
		return all
	}
	k := 0
	for i := range q.order.all() {
		s := &q.rec.times[i]
		since := s.submitted
		if since == notSeen {
			since = s.posted
		}
		if now-since >= longer {
			all = append(all, q.stuckAt(i, k, since, true))
		}
		k++
	}
	return all
}

// stuckAt describes the send in slot i, which is the k-th outstanding send; the oldest is number 0.
func (q *Queue) stuckAt(i uint32, k int, since time.Duration, exact bool) Stuck {
	s := Stuck{Queue: q, QPNum: q.qpn, Position: k, Outstanding: q.order.n, Waiting: q.sendFree.Waiting(),
		Since: q.r.timers.base.Add(since), Exact: exact}
	if exact {
		s.Record = q.outRecord(i)
		return s
	}
	sl := q.tab.slot(i)
	s.Record = Record{WRID: packWRID(q.id, i, sl.gen, sl.kind), Kind: sl.kind, Opcode: verbs.WROpcode(sl.opcode), Bytes: q.tab.bytes(i),
		Signaled: q.tab.send(i).Flags&verbs.SendSignaled != 0}
	return s
}

// oldestSince returns when the reactor first saw that the queue's oldest send was the oldest: at a
// tick of the watchdog or in a call of Stuck. The argument now is the time of the present call.
func (q *Queue) oldestSince(now time.Duration) time.Duration {
	if g := &q.progressMark; !g.busy || g.ended != q.order.ended {
		*g = progressMark{q.order.ended, now, true}
	}
	since := q.progressMark.at
	if l := q.peerLimit; l != nil && l.busy && l.ended == q.order.ended {
		since = min(since, q.r.watchdog.last-l.silent)
	}
	return since
}
