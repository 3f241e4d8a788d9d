package soft

import (
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// asyncChannel delivers the asynchronous events of a context, in the order in
// which they were raised.
//
// The kernel queues every event, without a bound (ib_uverbs_async_handler). A
// program that never reads would then keep memory for whatever happens to it,
// much of which its peers decide. Here an object has at most maxUnread events
// waiting; beyond that an event whose type waits already is not queued once
// more, since reading the one tells as much. What waits for an object goes
// with the object.
type asyncChannel struct {
	ctx      *deviceContext
	notifier *sys.Event
	rest     asyncState // of events without an object: the port's and the device's

	// mu orders raising (the engine), reading, acknowledging and the end of
	// objects. Events are rare, and nothing blocks while it is held.
	mu          sync.Mutex
	first, last *asyncNode
	closed      bool
}

// maxUnread is how many events wait for one object before those of a type that
// waits already are dropped. More than there are types: one of each, and the
// same several times over.
const maxUnread = 32

// asyncNode is one queued event: in the channel's list, and in the chain of its
// object.
type asyncNode struct {
	prev, next *asyncNode
	younger    *asyncNode // of the same object
	of         *asyncState
	ev         verbs.AsyncEvent
}

// asyncState is what an object that events happen to keeps for them. All of it
// is under the channel's mutex.
//
//	           raise                   Get                     Ack
//	nothing ──────────> unread (bounded) ────> unacknowledged ─────> nothing
//	                       │ end: gone              │ end: refused, ErrBusy
type asyncState struct {
	oldest, youngest *asyncNode
	unread           int
	unacked          int
	ended            bool
}

var _ verbs.AsyncChannel = (*asyncChannel)(nil)

// target is what the object of an event keeps for its events.
func (c *asyncChannel) target(ev *verbs.AsyncEvent) *asyncState {
	if q, ok := ev.QP.(*queuePair); ok {
		return &q.events
	}
	if q, ok := ev.QP.(*xrcReceiver); ok {
		return &q.events
	}
	if q, ok := ev.CQ.(*completionQueue); ok {
		return &q.events
	}
	if s, ok := ev.SRQ.(*sharedQueue); ok {
		return &s.events
	}
	return &c.rest
}

// raise queues an event. It allocates; events are rare.
func (c *asyncChannel) raise(ev verbs.AsyncEvent) {
	if c.queue(c.target(&ev), ev) {
		c.notifier.Signal() // not under the mutex: who is told may call Get
	}
}

// queue appends an event of s; false when it is not wanted.
func (c *asyncChannel) queue(s *asyncState, ev verbs.AsyncEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended || c.closed || (s.unread >= maxUnread && s.waits(ev.Type)) {
		return false
	}
	n := &asyncNode{prev: c.last, of: s, ev: ev}
	if c.last == nil {
		c.first = n
	} else {
		c.last.next = n
	}
	c.last = n
	if s.youngest == nil {
		s.oldest = n
	} else {
		s.youngest.younger = n
	}
	s.youngest = n
	s.unread++
	return true
}

// waits tells whether an event of type t is unread.
func (s *asyncState) waits(t verbs.AsyncEventType) bool {
	for n := s.oldest; n != nil; n = n.younger {
		if n.ev.Type == t {
			return true
		}
	}
	return false
}

// drop takes the oldest event of s off the list, unread or read.
func (c *asyncChannel) drop(s *asyncState) {
	n := s.oldest
	if s.oldest = n.younger; s.oldest == nil {
		s.youngest = nil
	}
	s.unread--
	if n.prev == nil {
		c.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		c.last = n.prev
	} else {
		n.next.prev = n.prev
	}
}

// end tells that an object goes: its unread events vanish and no others come.
// While events are unacknowledged it does nothing but say how many.
func (c *asyncChannel) end(s *asyncState) (unacked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.unacked > 0 {
		return s.unacked
	}
	s.ended = true
	for s.oldest != nil {
		c.drop(s)
	}
	return 0
}

// close ends the channel with its context.
func (c *asyncChannel) close() error {
	c.mu.Lock()
	c.closed, c.first, c.last = true, nil, nil
	c.mu.Unlock()
	return c.notifier.Close()
}

// FD is readable while an event is queued; see [verbs.Source].
func (c *asyncChannel) FD() int { return c.notifier.FD() }

// Notify sets what is called when an event is queued and there is no
// descriptor; see [verbs.Source].
func (c *asyncChannel) Notify(ring func()) { c.notifier.Notify(ring) }

// Get takes one event. Any goroutine may call it; it does not block. Events of
// destroyed objects are gone.
//
// Implements: ibv_get_async_event on a non-blocking descriptor.
func (c *asyncChannel) Get() (ev verbs.AsyncEvent, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ev, false, opError("ibv_get_async_event", c.ctx.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	n := c.first
	if n == nil {
		c.notifier.Drain() // who queues now signals later
		return ev, false, nil
	}
	c.drop(n.of) // n is its oldest: both lists are in the order of raising
	n.of.unacked++
	return n.ev, true, nil
}

// Ack acknowledges an event taken. Any goroutine may call it; it does not
// block.
//
// Implements: ibv_ack_async_event.
func (c *asyncChannel) Ack(ev verbs.AsyncEvent) {
	c.mu.Lock()
	c.target(&ev).unacked--
	c.mu.Unlock()
}
