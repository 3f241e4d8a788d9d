package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// recorder is a queue's flight recorder (QueueConfig.Recorder). A request's times stand
// with its slot while it is out, and go into a ring when it ends, which has room for all
// that can be out besides: so the flush of a failed queue pushes out neither the request
// that failed nor those before it.
//
// Off, it costs an operation two comparisons with nil; on, one reading of the clock by the
// submitter, at most two by each turn, and a record of what ended.
type recorder struct {
	// By slot. submitted is the submitter's, before the slot goes on its stack; the rest
	// the holder's, after.
	out []requestTimes
	// The holder's: what ended, the oldest at next once the ring is full.
	ring []ending
	next int
	full bool
}

// requestTimes is when a request was seen on its way out; unseen where it was not. Times are on
// the timers' clock.
type requestTimes struct {
	submitted, posted time.Duration
	signaled          bool
}

// notSeen is no time: clocks count from 0.
const notSeen = -1

// ending is what a ring keeps of a request.
type ending struct {
	requestTimes
	id     uint64
	ended  time.Duration
	err    error
	bytes  uint32
	opcode verbs.WROpcode
	kind   Kind
}

// passTime is a time that is read at most once a turn. The holder's.
type passTime struct {
	turn uint64
	at   time.Duration
}

// at is the time of m in this turn; between turns it is now.
func (r *Reactor) at(m *passTime) time.Duration {
	if !r.inPass {
		return r.clock()
	}
	if m.turn != r.stats.Passes {
		m.turn, m.at = r.stats.Passes, r.clock()
	}
	return m.at
}

// newRecorder keeps n that have ended, of a queue of so many slots; nil for none.
func newRecorder(n, slots int) *recorder {
	if n == 0 {
		return nil
	}
	return &recorder{out: make([]requestTimes, slots), ring: make([]ending, n+slots)}
}

// submitted notes a request that its submitter is about to push.
func (c *recorder) submitted(r *Reactor, slot uint32) {
	c.out[slot] = requestTimes{submitted: r.clock(), posted: notSeen}
}

// posted notes a request that the turn is about to post. Holder only, as all below.
func (c *recorder) posted(r *Reactor, slot uint32, signaled bool) {
	s := &c.out[slot]
	s.posted, s.signaled = r.at(&r.posting), signaled
}

// marked is posted for a marker, which nobody submitted.
func (c *recorder) marked(r *Reactor, slot uint32) {
	c.out[slot] = requestTimes{submitted: notSeen, posted: r.clock(), signaled: true}
}

// postedSends notes the last n of the queue's order.
func (c *recorder) postedSends(q *Queue, n int) {
	for at := q.order.tail - uint32(n); at != q.order.tail; at++ {
		i := q.order.at[at&q.order.mask]
		c.posted(q.r, i, q.tab.sendWR[i].Flags&verbs.SendSignaled != 0)
	}
}

// ended moves a request, whose slot is about to be freed, into the ring.
func (c *recorder) ended(q *Queue, slot, bytes uint32, err error) {
	sl, when := &q.tab.slots[slot], &q.r.polling
	if c.out[slot].posted == notSeen { // refused on the way, by a turn that may poll later
		when = &q.r.posting
	}
	c.ring[c.next] = ending{c.out[slot], packWRID(q.id, slot, sl.gen, sl.kind), q.r.at(when), err, bytes, verbs.WROpcode(sl.opcode), sl.kind}
	if c.next++; c.next == len(c.ring) {
		c.next, c.full = 0, true
	}
}
