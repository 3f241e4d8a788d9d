package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// recorder is a queue's flight recorder (QueueConfig.Recorder). Until a request ends, its times are
// in recorder.times. Then they are copied to recorder.ring, which has room for QueueConfig.Recorder
// requests plus one request for each slot. When a queue fails, at most one request for each slot is
// flushed. So the flushed requests overwrite neither the request that failed nor the
// QueueConfig.Recorder-1 requests that ended before it.
//
// In a queue without a recorder, the cost for an operation is two comparisons with nil. In a queue
// with a recorder, the submitter reads the clock for each request. A pass reads the clock twice, and
// once more for each marker, and copies each request that ends to the ring.
type recorder struct {
	// times[i] belongs to slot i. The submitter writes times[i] before it pushes the slot. After the
	// push, only the holder uses times[i].
	times []requestTimes
	// ring holds requests that have ended. ring[next] is the entry to write next. If full is true,
	// all entries are in use, and ring[next] is the oldest. Only the holder uses these three fields.
	ring []ending
	next int
	full bool
}

// requestTimes holds the times at which a request was submitted and posted, on the timers' clock.
// The field submitted is notSeen for a marker, which has no submitter. The field posted is notSeen
// until the request is posted.
type requestTimes struct {
	submitted, posted time.Duration
	signaled          bool
}

// notSeen marks a missing time. The timers' clock starts at 0, so -1 is never a time.
const notSeen = -1

// ending is an entry of recorder.ring: a request that has ended.
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
// that pass. Only the holder uses a passTime.
type passTime struct {
	pass uint64
	at   time.Duration
}

// at returns the clock reading of m. In a pass, the first call for m reads the clock,
// and later calls return the same reading. Between passes every call reads the clock.
func (r *Reactor) at(m *passTime) time.Duration {
	if !r.inPass {
		return r.clock()
	}
	if m.pass != r.stats.Passes {
		m.pass, m.at = r.stats.Passes, r.clock()
	}
	return m.at
}

// newRecorder makes the recorder of a queue with the given number of slots. The recorder keeps at
// least the last n requests that have ended. If n is 0, newRecorder returns nil.
func newRecorder(n, slots int) *recorder {
	if n == 0 {
		return nil
	}
	return &recorder{times: make([]requestTimes, slots), ring: make([]ending, n+slots)}
}

// submitted records that a request is submitted now. The submitter calls it before it
// pushes the slot.
func (c *recorder) submitted(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: r.clock(), posted: notSeen}
}

// posted records that this pass posts a request. Only the holder calls the functions below.
func (c *recorder) posted(r *Reactor, slot uint32, signaled bool) {
	s := &c.times[slot]
	s.posted, s.signaled = r.at(&r.posting), signaled
}

// marked records that a marker is posted now. No submitter has recorded the marker.
func (c *recorder) marked(r *Reactor, slot uint32) {
	c.times[slot] = requestTimes{submitted: notSeen, posted: r.clock(), signaled: true}
}

// postedSends calls c.posted for the last n requests of q.order; the first of them is in slot i.
func (c *recorder) postedSends(q *Queue, i uint32, n int) {
	for ; n > 0; n-- {
		c.posted(q.r, i, q.tab.send(i).Flags&verbs.SendSignaled != 0)
		i = q.links.Next(i)
	}
}

// ended adds an entry to the ring for the request in the slot, which has ended. Call it before the
// slot is freed.
func (c *recorder) ended(q *Queue, slot, bytes uint32, err error) {
	sl, when := q.tab.slot(slot), &q.r.polling
	if c.times[slot].posted == notSeen { // the pass refused the request while it gathered, before it polled
		when = &q.r.posting
	}
	c.ring[c.next] = ending{c.times[slot], packWRID(q.id, slot, sl.gen, sl.kind), q.r.at(when), err, bytes, verbs.WROpcode(sl.opcode), sl.kind}
	if c.next++; c.next == len(c.ring) {
		c.next, c.full = 0, true
	}
}
