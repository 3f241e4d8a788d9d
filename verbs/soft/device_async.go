package soft

import (
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// asyncChannel delivers the asynchronous events of a context, in the order in which they were
// raised.
//
// The kernel queues every event without a bound (ib_uverbs_async_handler). A program that never
// reads them would keep memory for events that its peers can cause. Here an object has at most
// maxUnread unread events; beyond that an event is dropped if one of its type is already unread,
// which carries the same information. Unread events of an object vanish with the object.
type asyncChannel struct {
	ctx      *deviceContext
	notifier *sys.Event
	rest     asyncState // of events without an object: the port's and the device's

	// mu orders raising (the engine), reading, acknowledging and the end of objects. Events are
	// rare, and no call blocks while holding it.
	mu          sync.Mutex
	first, last *asyncNode
	closed      bool
}

// maxUnread is the number of unread events of one object beyond which events of a type already
// unread are dropped. It is more than the number of types: one of each, several times over.
const maxUnread = 32

// asyncNode is one queued event, linked in the channel's list and in the chain of its object.
type asyncNode struct {
	prev, next *asyncNode
	younger    *asyncNode // next event of the same object
	of         *asyncState
	ev         verbs.AsyncEvent
}

// asyncState holds the events of an object. The channel's mutex guards it.
//
//	           raise                   Get                     Ack
//	nothing ──────────> unread (bounded) ────> unacknowledged ─────> nothing
//	                       │ end: discarded         │ end: refused, ErrBusy
type asyncState struct {
	oldest, youngest *asyncNode
	unread           int
	unacked          int
	ended            bool
}

var _ verbs.AsyncChannel = (*asyncChannel)(nil)

// target returns the event state of an event's object.
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
		c.notifier.Signal() // not under the mutex: Notify's function may call Get
	}
}

// queue appends an event of s. It returns false if the event is dropped.
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

// waits reports whether an event of type t is unread.
func (s *asyncState) waits(t verbs.AsyncEventType) bool {
	for n := s.oldest; n != nil; n = n.younger {
		if n.ev.Type == t {
			return true
		}
	}
	return false
}

// drop unlinks the oldest event of s.
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

// end discards an object's unread events and refuses further ones. While events are
// unacknowledged it only returns their number.
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

// FD returns a descriptor that is readable while an event is queued; see [verbs.Source].
func (c *asyncChannel) FD() int { return c.notifier.FD() }

// Notify sets the function to call when an event is queued and there is no descriptor; see
// [verbs.Source].
func (c *asyncChannel) Notify(ring func()) { c.notifier.Notify(ring) }

// Get takes one event. Any goroutine may call it; it does not block. Events of destroyed objects
// are discarded.
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
		c.notifier.Drain() // a later queue signals after it
		return ev, false, nil
	}
	c.drop(n.of) // n is its oldest: both lists are in the order of raising
	n.of.unacked++
	return n.ev, true, nil
}

// Ack acknowledges a taken event. Any goroutine may call it; it does not block.
//
// Implements: ibv_ack_async_event.
func (c *asyncChannel) Ack(ev verbs.AsyncEvent) {
	c.mu.Lock()
	c.target(&ev).unacked--
	c.mu.Unlock()
}
