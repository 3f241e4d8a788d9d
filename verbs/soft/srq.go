package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// sharedQueue is an SRQ: receives that any number of queue pairs take from. It
// is posted to by the holder of one reactor's turn, and taken from by the
// engine; its receives come back through the completion queues of whoever took
// them.
//
//	          SetLimit > 0                 fewer than limit are left
//	disarmed ─────────────> armed ──────────────────────────────────> disarmed, SRQ_LIMIT_REACHED
//	    ^   SetLimit 0        │
//	    └─────────────────────┘
type sharedQueue struct {
	ctx      *deviceContext
	pd       *protectionDomain // whose keys its elements use
	number   uint32
	userData uint64

	// rq is replaced by Resize, with the engine at rest and the turn held; read
	// by the poster and the engine.
	rq     atomic.Pointer[recvQueue]
	closed atomic.Bool // set by Close under the port's token; read by everybody
	events asyncState  // SRQ_LIMIT_REACHED, SRQ_ERR

	wrs wrMemory // the poster's

	// Under the port's token.
	limit uint32 // 0: not armed
	qps   int    // that take from it
}

var _ verbs.SRQ = (*sharedQueue)(nil)

// CreateSRQ makes a shared receive queue. A limit arms its event at once; like
// that of [sharedQueue.SetLimit] it is raised when a receive is taken.
//
// Implements: ibv_create_srq.
func (p *protectionDomain) CreateSRQ(attr *verbs.SRQAttr) (verbs.SRQ, error) {
	const op = "ibv_create_srq"
	l := &p.ctx.dev.cfg.Limits
	refuse := func(format string, a ...any) (verbs.SRQ, error) {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
	}
	switch {
	case attr.XRCD != nil || attr.CQ != nil:
		return nil, notYet(op, p.String(), "extended-connection shared receive queues")
	case attr.MaxWR < 1 || int64(attr.MaxWR) > int64(l.MaxSRQWR):
		return refuse("%d receives, must be between 1 and %d", attr.MaxWR, l.MaxSRQWR)
	case int64(attr.MaxSGE) > int64(l.MaxSRQSGE):
		return refuse("%d elements of a receive, the device has %d", attr.MaxSGE, l.MaxSRQSGE)
	case attr.Limit > attr.MaxWR:
		return refuse("a limit of %d for %d receives", attr.Limit, attr.MaxWR)
	}
	s := &sharedQueue{ctx: p.ctx, pd: p, userData: attr.UserData, limit: attr.Limit}
	s.rq.Store(newSharedRing(attr.MaxWR, attr.MaxSGE))
	full := false
	if err := p.exclusive(op, func() {
		if full = p.ctx.counts.SRQ >= l.MaxSRQ; full {
			return
		}
		p.ctx.counts.SRQ++
		p.srqs++
		s.number = p.ctx.dev.nextNumber()
	}); err != nil {
		return nil, err
	}
	if full {
		return nil, opError(op, p.String(), syscall.ENOMEM, "all %d shared receive queues are in use", l.MaxSRQ)
	}
	return s, nil
}

// taken notes that a receive was taken from rq. Engine only.
//
// Implements: rxe_resp.c, get_srq_wqe: one event when fewer than the limit are
// left behind a receive, and then no other until the limit is set again.
func (s *sharedQueue) taken(rq *recvQueue) {
	if s.limit > 0 && rq.posted() < uint64(s.limit) {
		s.limit = 0
		s.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// exclusive runs fn with the engine at rest, on an open queue.
func (s *sharedQueue) exclusive(op string, fn func() error) (err error) {
	if e := s.ctx.exclusive(op, func() {
		if s.closed.Load() {
			err = opError(op, s.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
			return
		}
		err = fn()
	}); e != nil {
		return e
	}
	return err
}

// SetLimit arms the limit event once more, or disarms it with 0. The event
// tells that a receive was taken and fewer than limit are left; that fewer are
// posted already raises nothing before the next is taken, as with rdma_rxe.
//
// Implements: ibv_modify_srq with IBV_SRQ_LIMIT.
func (s *sharedQueue) SetLimit(limit uint32) error {
	const op = "ibv_modify_srq"
	return s.exclusive(op, func() error {
		if size := s.rq.Load().size; uint64(limit) > size {
			return opError(op, s.String(), syscall.EINVAL, "%w: a limit of %d for %d receives", verbs.ErrInvalid, limit, size)
		}
		s.limit = limit
		return nil
	})
}

// Resize changes how many receives fit. Those posted keep their order; those
// that queue pairs hold, and those whose completions nobody has polled yet,
// count until they are polled. The turn must be held.
//
// Implements: ibv_modify_srq with IBV_SRQ_MAX_WR; the checks of rxe_srq.c
// (rxe_srq_chk_attr).
func (s *sharedQueue) Resize(maxWR uint32) error {
	const op = "ibv_modify_srq"
	refuse := func(format string, a ...any) error {
		return opError(op, s.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
	}
	if top := s.ctx.dev.cfg.Limits.MaxSRQWR; maxWR < 1 || int64(maxWR) > int64(top) {
		return refuse("%d receives, must be between 1 and %d", maxWR, top)
	}
	return s.exclusive(op, func() error {
		old := s.rq.Load()
		if s.limit > maxWR {
			return refuse("%d receives with a limit of %d", maxWR, s.limit)
		}
		out := old.out()
		if out > uint64(maxWR) {
			return refuse("%d receives, %d are outstanding", maxWR, out)
		}
		s.rq.Store(old.moved(maxWR, uint32(out)))
		return nil
	})
}

// out is how many receives are posted, held or not yet polled out. Poster only.
func (q *recvQueue) out() uint64 {
	q.places.collect()
	q.places.release()
	return q.size - uint64(q.places.free.n)
}

// moved is a ring of maxWR places with what is posted in q. The others of the
// out receives come back to q, or to the rings before it; until they do, as
// many places of the new ring are withheld. The engine is at rest.
func (q *recvQueue) moved(maxWR, out uint32) *recvQueue {
	to := newSharedRing(maxWR, q.maxSGE)
	p := to.places
	var head uint64
	for ; q.next != q.head.Load(); q.next++ {
		from := uint64(q.places.order[q.next&q.mask])
		place, _ := to.claim(head, true)
		*to.at(place) = *q.at(from)
		copy(to.sges(place, q.maxSGE), q.sges(from, q.maxSGE))
		head++
	}
	to.head.Store(head)
	for range out - uint32(head) {
		p.push(&p.withheld, p.pop(&p.free))
	}
	if p.withheld.n > 0 {
		p.prior = append(q.places.prior, q.places)
	}
	return to
}

// Query reads the attributes. Limit is 0 once the event was raised.
//
// Implements: ibv_query_srq.
func (s *sharedQueue) Query() (a verbs.SRQAttr, err error) {
	err = s.exclusive("ibv_query_srq", func() error {
		rq := s.rq.Load()
		a = verbs.SRQAttr{MaxWR: uint32(rq.size), MaxSGE: rq.maxSGE, Limit: s.limit, UserData: s.userData}
		return nil
	})
	return a, err
}

// Close destroys the queue; what is posted to it vanishes. It answers
// [verbs.ErrBusy] while queue pairs take from it or events are unacknowledged.
//
// Implements: ibv_destroy_srq.
func (s *sharedQueue) Close() error {
	const op = "ibv_destroy_srq"
	if s.closed.Load() {
		return nil
	}
	var err error
	if e := s.ctx.exclusive(op, func() {
		if s.closed.Load() {
			return
		}
		if s.qps > 0 {
			err = opError(op, s.String(), syscall.EBUSY, "%w: %d queue pairs take from it", verbs.ErrBusy, s.qps)
			return
		}
		if n := s.ctx.async.end(&s.events); n > 0 {
			err = opError(op, s.String(), syscall.EBUSY, "%w: %d events are not acknowledged", verbs.ErrBusy, n)
			return
		}
		s.closed.Store(true)
		s.pd.srqs--
		s.ctx.counts.SRQ--
	}); e != nil {
		return e
	}
	return err
}

// Context is the context it was made on.
func (s *sharedQueue) Context() verbs.Context { return s.ctx }

// UserData is the value given at creation.
func (s *sharedQueue) UserData() uint64 { return s.userData }

// Num is 0: it is not an XRC one.
func (s *sharedQueue) Num() uint32 { return 0 }

// String names the queue.
func (s *sharedQueue) String() string {
	return fmt.Sprintf("SRQ %d of %s", s.number, s.ctx.dev.cfg.Name)
}

// tellLastWQE tells the owners of queue pairs in ERR that these have completed
// their last receive of a shared queue. It runs behind the publishing of
// completions: who is told finds the completion.
//
// Implements: IBTA volume 1, 11.6.3.3 (last WQE reached).
func (d *device) tellLastWQE() {
	for _, q := range d.lastWQE {
		q.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q})
	}
	clear(d.lastWQE)
	d.lastWQE = d.lastWQE[:0]
}
