package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// recorder is a queue's flight recorder (QueueConfig.Recorder). The times of a request are in the
// field times until the request ends, and are then copied to a ring. The ring has room for
// QueueConfig.Recorder requests and for one more per slot. So when a queue fails and its
// outstanding requests are flushed, their entries do not overwrite the request that failed, or the
// last ones before it.
//
// Without a recorder an operation costs two more comparisons with nil. With a recorder the
// submitter reads the clock for each request, a pass reads it twice (and once more for a marker),
// and each request that ends is copied to the ring.
type recorder struct {
	// times is indexed by slot. The submitter writes an entry before it pushes the slot; after the
	// push the holder writes it.
	times []requestTimes
	// ring holds the requests that ended, and next is the entry to write next. If full is set, that
	// is also the oldest entry. Holder only.
	ring []ending
	next int
	full bool
}

// requestTimes holds the times of a request's submission and posting, on the timers' clock. A time
// is notSeen if the event has not happened.
type requestTimes struct {
	submitted, posted time.Duration
	signaled          bool
}

// notSeen marks a missing time. The timers' clock starts at 0, so -1 is never a time.
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

// passTime is a clock reading that all requests of one pass share. The field pass is the number of
// that pass. Holder only.
type passTime struct {
	pass uint64
	at   time.Duration
}

// at returns m's clock reading for this pass: the first call for m in a pass reads the clock.
// Between passes every call reads the clock.
func (r *Reactor) at(m *passTime) time.Duration {
	if !r.inPass {
		return r.clock()
	}
	if m.pass != r.stats.Passes {
		m.pass, m.at = r.stats.Passes, r.clock()
	}
	return m.at
}

// newRecorder makes a recorder for a queue with the given number of slots, which keeps at least the
// last n requests that ended. It returns nil if n is 0.
func newRecorder(n, slots int) *recorder {
	if n == 0 {
		return nil
	}
	return &recorder{times: make([]requestTimes, slots), ring: make([]ending, n+slots)}
}

// submitted records when a request is submitted. The submitter calls it before it pushes the slot.
func (c *recorder) submitted(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: r.clock(), posted: notSeen}
}

// posted records when a request is posted. Holder only, as everything below.
func (c *recorder) posted(r *Reactor, slot uint32, signaled bool) {
	s := &c.times[slot]
	s.posted, s.signaled = r.at(&r.posting), signaled
}

// marked records when a marker is posted. A marker has no submitter.
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

// ended copies a request that has ended to the ring. The caller frees the slot next.
func (c *recorder) ended(q *Queue, slot, bytes uint32, err error) {
	sl, when := &q.tab.slots[slot], &q.r.polling
	if c.times[slot].posted == notSeen { // refused before this pass has polled
		when = &q.r.posting
	}
	c.ring[c.next] = ending{c.times[slot], packWRID(q.id, slot, sl.gen, sl.kind), q.r.at(when), err, bytes, verbs.WROpcode(sl.opcode), sl.kind}
	if c.next++; c.next == len(c.ring) {
		c.next, c.full = 0, true
	}
}
