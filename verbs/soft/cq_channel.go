package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// compChannel delivers completion events. The engine of its device pushes queues onto the inbox;
// one goroutine takes them off.
type compChannel struct {
	ctx      *deviceContext
	number   uint32
	notifier *sys.Event
	inbox    ring.Inbox[completionQueue, *completionQueue]
	taken    *completionQueue // queues taken off the inbox and not yet returned; owned by the GetEvent caller
	closed   atomic.Bool      // set by Close; read by GetEvent
	cqs      int              // queues that report here; under the port's token
}

var _ verbs.CompChannel = (*compChannel)(nil)

// raise queues one event of q. Engine only.
func (c *compChannel) raise(q *completionQueue) {
	if q.pending.Add(1) == 1 {
		c.inbox.Push(q)
	}
	c.notifier.Signal()
}

// FD returns a descriptor that is readable while an event is queued; see [verbs.Source].
func (c *compChannel) FD() int { return c.notifier.FD() }

// Notify sets the function to call when an event is queued and there is no descriptor; see
// [verbs.Source].
func (c *compChannel) Notify(ring func()) { c.notifier.Notify(ring) }

// GetEvent takes one event, in the order in which the queues raised them. One goroutine at a time
// may call it; it does not block. The event must be acknowledged at its queue. Events of
// destroyed queues are discarded, as in the kernel (ib_uverbs_release_ucq).
//
// Implements: ibv_get_cq_event on a non-blocking descriptor.
func (c *compChannel) GetEvent() (cq verbs.CQ, ok bool, err error) {
	for {
		if c.closed.Load() {
			return nil, false, opError("ibv_get_cq_event", c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
		}
		if c.taken == nil {
			if c.taken = c.inbox.TakeAll(); c.taken == nil {
				// The inbox is empty, so clear the notifier. The second look finds an event
				// queued between the first look and Drain, and signals again for it.
				c.notifier.Drain()
				if c.taken = c.inbox.TakeAll(); c.taken == nil {
					return nil, false, nil
				}
				c.notifier.Signal()
			}
		}
		q := c.taken
		c.taken = q.hook.Unlink()
		if q.pending.Add(-1) > 0 {
			c.inbox.Push(q) // another event of the same queue
		}
		if q.closed.Load() {
			continue
		}
		q.unacked.Add(1)
		return q, true, nil
	}
}

// String returns the channel's name.
func (c *compChannel) String() string {
	return fmt.Sprintf("completion channel %d of %s", c.number, c.ctx.dev.cfg.Name)
}

// Close destroys the channel and its descriptor. It returns [verbs.ErrBusy] while queues report
// here.
//
// Implements: ibv_destroy_comp_channel.
func (c *compChannel) Close() (err error) {
	const op = "ibv_destroy_comp_channel"
	if c.closed.Load() {
		return nil
	}
	if e := c.ctx.closing(op, func() {
		switch {
		case c.closed.Load():
		case c.cqs > 0:
			err = opError(op, c.String(), syscall.EBUSY, "%w: %d completion queues report here", verbs.ErrBusy, c.cqs)
		default:
			c.closed.Store(true)
			c.ctx.counts.CompChannel--
			err = c.notifier.Close()
		}
	}); e != nil {
		return e
	}
	return err
}
