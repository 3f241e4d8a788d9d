package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// errnoCQDead is the errno of polling an overrun completion queue.
const errnoCQDead = syscall.EIO

// The armed states of a completion queue.
const (
	armNone      = 0
	armSolicited = 1 // solicited or failed completions only
	armAny       = 2
)

// completionQueue is a CQ. Only the engine of its device fills it.
//
//	            Arm                    a completion that matches
//	not armed ───────> armed ─────────────────────────────────> not armed, one event
//
//	alive ── no room for a completion ──> dead: CQ_ERR; its queue pairs to ERR,
//	                                      each with QP_FATAL; SRQ_ERR of XRC ones
type completionQueue struct {
	ctx      *deviceContext
	ch       *compChannel // nil: no events
	number   uint32
	userData uint64

	// ring is the ring the engine produces into. It is written under the port's token, and read
	// by Capacity from any goroutine.
	ring atomic.Pointer[cqRing]
	cur  *cqRing // the ring the poller reads; poller only

	// armed is an arm value. The poller raises it; the engine clears it when it raises the event.
	// The engine publishes the ring's tail before it reads armed, and the poller writes armed
	// before it reads the tail: one of them sees the other, so no completion stays in the queue
	// without an event.
	armed atomic.Uint32
	// dead is set once, by the engine at an overrun; the poller reads it.
	dead atomic.Bool
	// closed is set by Close under the port's token; channels read it.
	closed atomic.Bool

	// pending counts this queue's events in the channel that are not yet taken. The engine raises
	// it; GetEvent lowers it.
	pending atomic.Int32
	hook    ring.Hook[completionQueue] // on the channel's inbox while pending > 0
	// unacked counts events taken and not acknowledged.
	unacked atomic.Int64
	events  asyncState // CQ_ERR

	// The following belong to the engine, under the port's token.
	qps        []*queuePair   // one entry for each work queue that completes here
	srqs       []*sharedQueue // XRC shared receive queues that complete here
	dirty      bool           // on the device's list of rings to publish
	unsolicNew bool           // completions since the last publishing
	solicNew   bool           // solicited or failed ones among them
}

var _ verbs.CQ = (*completionQueue)(nil)

// InboxHook returns the link into the channel's inbox.
func (q *completionQueue) InboxHook() *ring.Hook[completionQueue] { return &q.hook }

// push appends a completion. It becomes visible when Progress ends. Engine only.
func (q *completionQueue) push(wq *workQueue, pos uint64, solicited bool) *verbs.WC {
	var e *cqe
	if !q.dead.Load() {
		if e = q.ring.Load().place(); e == nil {
			q.overrun()
		}
	}
	if e == nil {
		if wq.slots != nil {
			wq.slots.give(uint32(pos)) // the queue is shared
		}
		return &q.ctx.dev.lostWC
	}
	e.wq, e.pos = wq, pos
	e.wc = verbs.WC{}
	q.unsolicNew = true
	q.solicNew = q.solicNew || solicited
	if !q.dirty {
		q.dirty = true
		q.ctx.dev.dirtyCQs = append(q.ctx.dev.dirtyCQs, q)
	}
	return &e.wc
}

// overrun marks the queue dead and breaks every queue pair that completes here.
//
// Implements: IBTA volume 1, 11.6.3.2 (CQ overrun is an affiliated asynchronous error of the CQ,
// and a catastrophic one of the work queues that complete there: their owners, who may be others,
// can no longer learn of it from a completion).
func (q *completionQueue) overrun() {
	if !q.dead.CompareAndSwap(false, true) {
		return
	}
	q.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: q})
	for _, p := range q.qps {
		q.ctx.dev.breakLater(p)
	}
	for _, s := range q.srqs {
		s.fail()
	}
}

// publish makes the completions of this Progress call visible and raises the requested event.
// Engine only.
func (q *completionQueue) publish() {
	q.dirty = false
	r := q.ring.Load()
	r.tail.Store(r.fill)
	// If the swap fails, the poller has raised armSolicited to armAny, which the next publishing would answer
	// too late: look again. If it succeeds, a later arming is for later completions, even if it takes place
	// before raise returns.
	for a := q.armed.Load(); a != armNone && (q.solicNew || a == armAny && q.unsolicNew); a = q.armed.Load() {
		if q.armed.CompareAndSwap(a, armNone) {
			if q.ch != nil {
				q.ch.raise(q)
			}
			break
		}
	}
	q.unsolicNew, q.solicNew = false, false
}

// arm requests one event, and reports whether none was requested before. A solicited-only request does not weaken one
// for any completion (as rxe_req_notify_cq).
func (q *completionQueue) arm(solicited bool) (newly bool) {
	if !solicited {
		newly = q.armed.Swap(armAny) == armNone
	} else {
		newly = q.armed.CompareAndSwap(armNone, armSolicited)
	}
	if l := q.ctx.dev.link.Load(); l != nil {
		l.Arm() // after the queue: what arrives now raises its event
		q.ctx.dev.rests(l)
	}
	return newly
}

// take takes completions. Poller only.
func (q *completionQueue) take(g *verbs.PollGroup) {
	for g.N < len(g.WC) {
		n := q.cur.poll(g.WC[g.N:])
		g.N += n
		if n > 0 {
			continue
		}
		next := q.cur.next.Load()
		if next == nil || q.cur.head.Load() != q.cur.tail.Load() {
			break
		}
		q.cur = next
	}
	if q.dead.Load() {
		g.Errno = errnoCQDead
	}
}

// Context returns the context of the queue.
func (q *completionQueue) Context() verbs.Context { return q.ctx }

// Capacity returns the number of entries granted.
func (q *completionQueue) Capacity() int { return int(q.ring.Load().size) }

// UserData returns the value given at creation.
func (q *completionQueue) UserData() uint64 { return q.userData }

// String returns the queue's name.
func (q *completionQueue) String() string {
	return fmt.Sprintf("CQ %d of %s", q.number, q.ctx.dev.cfg.Name)
}

// AckEvents acknowledges n events taken from the channel. Any goroutine may
// call it; it does not block.
//
// Implements: ibv_ack_cq_events.
func (q *completionQueue) AckEvents(n int) { q.unacked.Add(-int64(n)) }

// Resize changes the capacity and keeps the queued completions. It returns [verbs.ErrInvalid]
// when these would not fit.
//
// Implements: ibv_resize_cq.
func (q *completionQueue) Resize(cqe int) (err error) {
	const op = "ibv_resize_cq"
	if max := q.ctx.dev.cfg.Limits.MaxCQE; cqe < 1 || cqe > max {
		return opError(op, q.String(), syscall.EINVAL, "%w: %d entries, must be between 1 and %d", verbs.ErrInvalid, cqe, max)
	}
	if e := q.ctx.exclusive(op, func() {
		old := q.ring.Load()
		if n := old.queued(); n > uint64(cqe) {
			err = opError(op, q.String(), syscall.EINVAL, "%w: %d completions are queued, %d entries asked for", verbs.ErrInvalid, n, cqe)
			return
		}
		r := newCQRing(cqe)
		r.prior = old
		old.tail.Store(old.fill)
		q.ring.Store(r)
		old.next.Store(r)
	}); e != nil {
		return e
	}
	return err
}

// Close destroys the queue. It returns [verbs.ErrBusy] while queue pairs complete here or events
// are unacknowledged.
//
// Implements: ibv_destroy_cq.
func (q *completionQueue) Close() (err error) {
	const op = "ibv_destroy_cq"
	if q.closed.Load() {
		return nil
	}
	if e := q.ctx.closing(op, func() {
		if q.closed.Load() {
			return
		}
		if n := len(q.qps) + len(q.srqs); n > 0 {
			err = opError(op, q.String(), syscall.EBUSY, "%w: %d work queues complete here", verbs.ErrBusy, n)
			return
		}
		n := q.unacked.Load()
		if n == 0 {
			n = int64(q.ctx.async.end(&q.events))
		}
		if n > 0 {
			err = opError(op, q.String(), syscall.EBUSY, "%w: %d events are not acknowledged", verbs.ErrBusy, n)
			return
		}
		q.closed.Store(true)
		for r := q.cur; r != nil; r = r.next.Load() {
			r.abandon()
		}
		q.ctx.counts.CQ--
		if q.ch != nil {
			q.ch.cqs--
		}
	}); e != nil {
		return e
	}
	return err
}
