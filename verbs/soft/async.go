package soft

import (
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// asyncNode is one queued asynchronous event.
type asyncNode struct {
	hook ring.Hook[asyncNode]
	ev   verbs.AsyncEvent
}

// InboxHook links the event into the channel's inbox.
func (n *asyncNode) InboxHook() *ring.Hook[asyncNode] { return &n.hook }

// asyncChannel delivers the asynchronous events of a context.
type asyncChannel struct {
	ctx    *deviceContext
	bell   *sys.Event
	inbox  ring.Inbox[asyncNode, *asyncNode]
	taken  *asyncNode // the rest of what was taken off the inbox; the taker's
	closed atomic.Bool
}

var _ verbs.AsyncChannel = (*asyncChannel)(nil)

// raise queues an event. Engine only; it allocates, events are rare.
func (c *asyncChannel) raise(ev verbs.AsyncEvent) {
	c.inbox.Push(&asyncNode{ev: ev})
	c.bell.Signal()
}

// FD is readable while an event is queued; see [verbs.Source].
func (c *asyncChannel) FD() int { return c.bell.FD() }

// Notify sets what is called when an event is queued and there is no
// descriptor; see [verbs.Source].
func (c *asyncChannel) Notify(ring func()) { c.bell.Notify(ring) }

// target is the object of an event: whether it is closed, and its count of
// unacknowledged events; nil for a port's.
func target(ev *verbs.AsyncEvent) (closed *atomic.Bool, unacked *atomic.Int64) {
	if q, ok := ev.QP.(*queuePair); ok {
		return &q.closed, &q.asyncUnacked
	}
	if q, ok := ev.CQ.(*completionQueue); ok {
		return &q.closed, &q.asyncUnacked
	}
	return nil, nil
}

// Get takes one event. One goroutine at a time may call it; it does not block.
// Events of destroyed objects are gone.
//
// Implements: ibv_get_async_event on a non-blocking descriptor.
func (c *asyncChannel) Get() (ev verbs.AsyncEvent, ok bool, err error) {
	for {
		if c.closed.Load() {
			return ev, false, opError("ibv_get_async_event", c.ctx.String(), syscall.EBADF, "%w", verbs.ErrClosed)
		}
		if c.taken == nil {
			if c.taken = c.inbox.TakeAll(); c.taken == nil {
				c.bell.Drain() // as compChannel.GetEvent
				if c.taken = c.inbox.TakeAll(); c.taken == nil {
					return ev, false, nil
				}
				c.bell.Signal()
			}
		}
		n := c.taken
		c.taken = n.hook.Unlink()
		closed, unacked := target(&n.ev)
		if closed != nil {
			if closed.Load() {
				continue
			}
			unacked.Add(1)
		}
		return n.ev, true, nil
	}
}

// Ack acknowledges an event taken. Any goroutine may call it.
//
// Implements: ibv_ack_async_event.
func (c *asyncChannel) Ack(ev verbs.AsyncEvent) {
	if _, unacked := target(&ev); unacked != nil {
		unacked.Add(-1)
	}
}
