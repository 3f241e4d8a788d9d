package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// recorder is a queue's flight recorder (QueueConfig.Recorder). It keeps a request's times by slot
// until the request ends, and then in a ring. The ring has extra room for all requests that can be
// outstanding, so that the flush of a failed queue does not overwrite the request that failed, or
// the last ones before it.
//
// Without a recorder an operation pays two comparisons with nil. With a recorder the submitter
// reads the clock for each request, a pass reads it twice (and once more for a marker), and each
// request that ends is copied to the ring.
type recorder struct {
	// times is indexed by slot. The submitter writes the field submitted before it pushes the
	// slot; the holder writes the other fields after the push.
	times []requestTimes
	// The holder's: requests that ended. When the ring is full, the oldest is at next.
	ring []ending
	next int
	full bool
}

// requestTimes holds when a request was submitted and posted, on the timers' clock; notSeen if it
// was not submitted or not posted.
type requestTimes struct {
	submitted, posted time.Duration
	signaled          bool
}

// notSeen stands for no time. Clocks count from 0, so -1 is never a time.
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

// at returns the time that m holds for this pass; at the first call for m in a pass it reads the
// clock. Between passes it returns the current time.
func (r *Reactor) at(m *passTime) time.Duration {
	if !r.inPass {
		return r.clock()
	}
	if m.pass != r.stats.Passes {
		m.pass, m.at = r.stats.Passes, r.clock()
	}
	return m.at
}

// newRecorder makes a recorder for a queue with slots slots. The recorder keeps n ended requests.
// newRecorder returns nil if n is 0.
func newRecorder(n, slots int) *recorder {
	if n == 0 {
		return nil
	}
	return &recorder{times: make([]requestTimes, slots), ring: make([]ending, n+slots)}
}

// submitted records the time of a request that its submitter is about to push.
func (c *recorder) submitted(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: r.clock(), posted: notSeen}
}

// posted records the time of a request that the pass is about to post. Holder only, as everything
// below.
func (c *recorder) posted(r *Reactor, slot uint32, signaled bool) {
	s := &c.times[slot]
	s.posted, s.signaled = r.at(&r.posting), signaled
}

// marked records the time of a marker, which has no submitter.
func (c *recorder) marked(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: notSeen, posted: r.clock(), signaled: true}
}

// postedSends calls the method posted for the last n requests of q.order.
func (c *recorder) postedSends(q *Queue, n int) {
	for at := q.order.tail - uint32(n); at != q.order.tail; at++ {
		i := q.order.at[at&q.order.mask]
		c.posted(q.r, i, q.tab.sendWR[i].Flags&verbs.SendSignaled != 0)
	}
}

// ended moves a request, whose slot is about to be freed, into the ring.
func (c *recorder) ended(q *Queue, slot, bytes uint32, err error) {
	sl, when := &q.tab.slots[slot], &q.r.polling
	if c.times[slot].posted == notSeen { // refused by posting, when the pass may not have a polling time yet
		when = &q.r.posting
	}
	c.ring[c.next] = ending{c.times[slot], packWRID(q.id, slot, sl.gen, sl.kind), q.r.at(when), err, bytes, verbs.WROpcode(sl.opcode), sl.kind}
	if c.next++; c.next == len(c.ring) {
		c.next, c.full = 0, true
	}
}
