package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// recorder is a queue's flight recorder (QueueConfig.Recorder). It keeps a request's times by slot
// while the request is outstanding, and in a ring when it has ended. The ring has extra room for
// all requests that can be outstanding: so the flush of a failed queue overwrites neither the
// request that failed nor those before it.
//
// Off, it costs an operation two comparisons with nil; on, one reading of the clock by the
// submitter, at most two by each pass, and a record of each request that ended.
type recorder struct {
	// By slot. The submitter writes submitted before it pushes the slot; the holder writes the
	// rest, after that.
	times []requestTimes
	// The holder's: requests that ended, with the oldest at next once the ring is full.
	ring []ending
	next int
	full bool
}

// requestTimes holds when a request was submitted and posted, on the timers' clock; notSeen if it
// was not.
type requestTimes struct {
	submitted, posted time.Duration
	signaled          bool
}

// notSeen means no time: clocks count from 0.
const notSeen = -1

// ending is the ring's entry for a request that has ended.
type ending struct {
	requestTimes
	id     uint64
	ended  time.Duration
	err    error
	bytes  uint32
	opcode verbs.WROpcode
	kind   Kind
}

// passTime is a time that is read at most once a pass. The holder's.
type passTime struct {
	pass uint64
	at   time.Duration
}

// at returns the time of m in this pass; between passes it returns the current time.
func (r *Reactor) at(m *passTime) time.Duration {
	if !r.inPass {
		return r.clock()
	}
	if m.pass != r.stats.Passes {
		m.pass, m.at = r.stats.Passes, r.clock()
	}
	return m.at
}

// newRecorder makes a recorder that keeps n ended requests of a queue with so many slots; nil for
// n of 0.
func newRecorder(n, slots int) *recorder {
	if n == 0 {
		return nil
	}
	return &recorder{times: make([]requestTimes, slots), ring: make([]ending, n+slots)}
}

// submitted records a request that its submitter is about to push.
func (c *recorder) submitted(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: r.clock(), posted: notSeen}
}

// posted records a request that the pass is about to post. Holder only, as everything below.
func (c *recorder) posted(r *Reactor, slot uint32, signaled bool) {
	s := &c.times[slot]
	s.posted, s.signaled = r.at(&r.posting), signaled
}

// marked is posted for a marker, which has no submitter.
func (c *recorder) marked(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: notSeen, posted: r.clock(), signaled: true}
}

// postedSends records the last n requests of q.order.
func (c *recorder) postedSends(q *Queue, n int) {
	for at := q.order.tail - uint32(n); at != q.order.tail; at++ {
		i := q.order.at[at&q.order.mask]
		c.posted(q.r, i, q.tab.sendWR[i].Flags&verbs.SendSignaled != 0)
	}
}

// ended moves a request, whose slot is about to be freed, into the ring.
func (c *recorder) ended(q *Queue, slot, bytes uint32, err error) {
	sl, when := &q.tab.slots[slot], &q.r.polling
	if c.times[slot].posted == notSeen { // refused before it was posted, by a pass that may poll later
		when = &q.r.posting
	}
	c.ring[c.next] = ending{c.times[slot], packWRID(q.id, slot, sl.gen, sl.kind), q.r.at(when), err, bytes, verbs.WROpcode(sl.opcode), sl.kind}
	if c.next++; c.next == len(c.ring) {
		c.next, c.full = 0, true
	}
}
