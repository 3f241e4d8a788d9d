//go:build linux && cgo && !portable

package ibv

// /* The event is written to the stack. */
// #cgo noescape shim_get_cq_event
// #cgo nocallback shim_get_cq_event
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// completionQueue is a CQ.
type completionQueue struct {
	node
	c        *C.struct_vb_cq
	extended bool // made by ibv_create_cq_ex, polled by ibv_start_poll
	userData uint64
	// size is the number of entries. Written by Resize, read by Capacity.
	size atomic.Int64
	// events are the completion events among unacked.
	events tally
}

var _ verbs.CQ = (*completionQueue)(nil)

// CreateCQ makes a completion queue of at least cqe entries. With
// [Config.ExtendedCQ] it is an extended one, if the device has them.
//
// Implements: ibv_create_cq, ibv_create_cq_ex.
func (c *deviceContext) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	const op = "ibv_create_cq"
	if cqe < 1 || cqe > math.MaxInt32 {
		return nil, opError(op, c.label, syscall.EINVAL, "%w: %d entries", verbs.ErrInvalid, cqe)
	}
	if n := int(c.c.num_comp_vectors); vector < 0 || vector >= n {
		return nil, opError(op, c.label, syscall.EINVAL, "%w: completion vector %d, there are %d", verbs.ErrInvalid, vector, n)
	}
	q := &completionQueue{userData: userData}
	var own *compChannel
	var parents []*node
	var channel *C.struct_vb_comp_channel
	if ch != nil {
		var ok bool
		if own, ok = ch.(*compChannel); !ok || own == nil || own.ctx != c {
			return nil, foreign(op, c.label, ch)
		}
		parents, channel = []*node{&own.node}, own.c
	}
	if err := c.make(op, &q.node, parents, &c.counts.CQ, func() (string, syscall.Errno) {
		id := C.uint64_t(c.ids.add(q))
		var err error
		if c.p.libs.cfg.ExtendedCQ {
			q.c, err = C.shim_create_cq_ex(c.c, C.int(cqe), id, channel, C.int(vector))
			q.extended = q.c != nil
		}
		if !q.extended && (err == nil || errors.Is(sentinel(errnoOf(err)), verbs.ErrNotSupported)) {
			q.c, err = C.shim_create_cq(c.t, c.c, C.int(cqe), id, channel, C.int(vector))
		}
		if q.c == nil {
			return "", errnoOf(err)
		}
		q.size.Store(int64(q.c.cqe))
		return fmt.Sprintf("CQ %d of %s", q.c.handle, c.info.Name), 0
	}); err != nil {
		return nil, limited(err, "a completion queue of %d entries", cqe)
	}
	return q, nil
}

// Context returns the context of the queue.
func (q *completionQueue) Context() verbs.Context { return q.ctx }

// Capacity is the number of entries granted.
func (q *completionQueue) Capacity() int { return int(q.size.Load()) }

// UserData is the value given at creation.
func (q *completionQueue) UserData() uint64 { return q.userData }

// AckEvents acknowledges n events taken from the channel; an excess over the events taken is
// ignored. The C library's count changes first, because the queue may be destroyed as soon as
// ours is zero.
//
// Implements: ibv_ack_cq_events.
func (q *completionQueue) AckEvents(n int) {
	if n = q.events.claim(n); n == 0 {
		return
	}
	C.shim_ack_cq_events(q.ctx.t, q.c, C.uint(n))
	q.unacked.Add(-int64(n))
}

// Resize changes the capacity and keeps the queued completions.
//
// Implements: ibv_resize_cq.
func (q *completionQueue) Resize(cqe int) error {
	const op = "ibv_resize_cq"
	if cqe < 1 || cqe > math.MaxInt32 {
		return opError(op, q.label, syscall.EINVAL, "%w: %d entries", verbs.ErrInvalid, cqe)
	}
	err := q.use(op, func() syscall.Errno {
		e := syscall.Errno(C.shim_resize_cq(q.ctx.t, q.c, C.int(cqe)))
		if e == 0 {
			q.size.Store(int64(q.c.cqe))
		}
		return e
	})
	if err == nil {
		return nil
	}
	return limited(err, "a completion queue of %d entries, beside its old ring", cqe)
}

// Close destroys the queue. [verbs.ErrBusy] while queue pairs use it or events are
// unacknowledged.
//
// Implements: ibv_destroy_cq.
func (q *completionQueue) Close() error {
	return q.shut("ibv_destroy_cq", func() syscall.Errno { return syscall.Errno(C.shim_destroy_cq(q.ctx.t, q.c)) })
}

// compChannel delivers completion events.
type compChannel struct {
	node
	c  *C.struct_vb_comp_channel
	fd int // valid after c, which closes it, is gone
}

var _ verbs.CompChannel = (*compChannel)(nil)

// FD polls readable while there are events; see [verbs.Source].
func (ch *compChannel) FD() int { return ch.fd }

// Notify does nothing: the channel has a descriptor.
func (ch *compChannel) Notify(func()) {}

// GetEvent takes one event. It must be acknowledged at its queue. GetEvent itself acknowledges an
// event of a queue that is being closed, so that the close ends.
//
// Implements: ibv_get_cq_event on a non-blocking descriptor.
func (ch *compChannel) GetEvent() (verbs.CQ, bool, error) {
	const op = "ibv_get_cq_event"
	c := ch.ctx
	if err := c.keep(op, &ch.node); err != nil {
		return nil, false, err
	}
	defer c.release(&ch.node)
	for {
		var cq *C.struct_vb_cq
		var id C.uint64_t
		switch e := syscall.Errno(C.shim_get_cq_event(c.t, ch.c, &cq, &id)); e {
		case 0:
		case syscall.EAGAIN, syscall.EINTR:
			return nil, false, nil
		default:
			return nil, false, c.failed(op, ch.label, e)
		}
		if q, ok := c.ids.take(uint64(id)).(*completionQueue); ok {
			q.events.n.Add(1)
			return q, true, nil
		}
		C.shim_ack_cq_events(c.t, cq, 1)
	}
}

// Close destroys the channel. [verbs.ErrBusy] while it has completion queues.
//
// Implements: ibv_destroy_comp_channel.
func (ch *compChannel) Close() error {
	return ch.shut("ibv_destroy_comp_channel", func() syscall.Errno { return syscall.Errno(C.shim_destroy_channel(ch.ctx.t, ch.c)) })
}
