package soft

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// sharedQueue is an SRQ: receives that any number of queue pairs take from. The holder of one
// reactor's turn posts to it, and the engine takes from it. Its receives complete through the
// completion queues of the queue pairs that took them.
//
//	          SetLimit > 0                 fewer than limit are left
//	disarmed ─────────────> armed ──────────────────────────────────> disarmed, SRQ_LIMIT_REACHED
//	    ^   SetLimit 0        │
//	    └─────────────────────┘
type sharedQueue struct {
	ctx      *deviceContext
	pd       *protectionDomain // the domain of its elements' keys
	number   uint32
	userData uint64

	// rq is replaced by Resize, with the port's token and the reactor's turn held; the poster and
	// the engine read it.
	rq     atomic.Pointer[recvQueue]
	closed atomic.Bool // set by Close under the port's token; any goroutine may read it
	events asyncState  // SRQ_LIMIT_REACHED, SRQ_ERR

	wrs wrMemory // the poster's

	// The XRC fields; nil and 0 in other queues. Immutable.
	xrcd *xrcd
	cq   *completionQueue // where its receives complete
	srqn uint32           // the number that senders use

	// Under the port's token.
	limit  uint32 // 0: not armed
	qps    int    // number of queue pairs that take from it
	failed bool   // cq is dead; XRC only
}

var _ verbs.SRQ = (*sharedQueue)(nil)

// CreateSRQ makes a shared receive queue. With a domain it is an XRC queue, which also needs a
// completion queue. A limit arms the limit event at once; like that of [sharedQueue.SetLimit] it
// is raised when a receive is taken.
//
// Implements: ibv_create_srq, ibv_create_srq_ex.
func (p *protectionDomain) CreateSRQ(attr *verbs.SRQAttr) (verbs.SRQ, error) {
	const op = "ibv_create_srq"
	l := &p.ctx.dev.cfg.Limits
	refuse := func(format string, a ...any) (verbs.SRQ, error) {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
	}
	x, okX := p.ctx.ownXRCD(attr.XRCD)
	cq, okCQ := p.ctx.ownCQ(attr.CQ)
	switch {
	case attr.XRCD == nil && attr.CQ != nil:
		return refuse("a completion queue for receives that complete where their queue pairs do")
	case attr.XRCD != nil && (!okX || !okCQ):
		return refuse("an XRC queue needs a domain and a completion queue of its context, has %v and %v", attr.XRCD, attr.CQ)
	case attr.MaxWR < 1 || int64(attr.MaxWR) > int64(l.MaxSRQWR):
		return refuse("%d receives, must be between 1 and %d", attr.MaxWR, l.MaxSRQWR)
	case int64(attr.MaxSGE) > int64(l.MaxSRQSGE):
		return refuse("%d elements of a receive, the device has %d", attr.MaxSGE, l.MaxSRQSGE)
	case attr.Limit > attr.MaxWR:
		return refuse("a limit of %d for %d receives", attr.Limit, attr.MaxWR)
	}
	s := &sharedQueue{ctx: p.ctx, pd: p, userData: attr.UserData, limit: attr.Limit, xrcd: x, cq: cq}
	s.rq.Store(newSharedRing(attr.MaxWR, attr.MaxSGE))
	var err error
	if e := p.exclusive(op, func() {
		switch {
		case p.ctx.counts.SRQ >= l.MaxSRQ:
			err = opError(op, p.String(), syscall.ENOMEM, "all %d shared receive queues are in use", l.MaxSRQ)
		case x != nil && x.closed:
			err = opError(op, p.String(), syscall.EINVAL, "%w: %v", verbs.ErrClosed, x)
		case cq != nil && cq.closed.Load():
			err = opError(op, p.String(), syscall.EINVAL, "%w: %v", verbs.ErrClosed, cq)
		default:
			s.begin()
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// begin adds the queue to the device; finish undoes it. The caller holds the token.
func (s *sharedQueue) begin() {
	s.ctx.counts.SRQ++
	s.pd.srqs++
	s.number = s.ctx.dev.nextNumber()
	if s.xrcd != nil {
		s.xrcd.srqs++
		s.cq.srqs = append(s.cq.srqs, s)
		s.ctx.dev.addXRC(s)
	}
}

func (s *sharedQueue) finish() {
	s.closed.Store(true)
	s.ctx.counts.SRQ--
	s.pd.srqs--
	if s.xrcd != nil {
		s.xrcd.srqs--
		s.cq.srqs = slices.DeleteFunc(s.cq.srqs, func(o *sharedQueue) bool { return o == s })
		s.ctx.dev.dropXRC(s)
	}
}

// taken handles that a receive was taken from rq. Engine only.
//
// Implements: rxe_resp.c, get_srq_wqe: one event when fewer than the limit are left after a
// receive is taken, and then no other until the limit is set again.
func (s *sharedQueue) taken(rq *recvQueue) {
	if s.limit > 0 && rq.posted() < uint64(s.limit) {
		s.limit = 0
		s.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// exclusive runs fn with the port's token, on an open queue.
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

// SetLimit arms the limit event again; 0 disarms it. The event reports that a receive was taken
// and fewer than limit are left. If fewer are already posted, it is raised only when the next is
// taken, as with rdma_rxe.
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

// Query returns the attributes. Limit is 0 once the event was raised.
//
// Implements: ibv_query_srq.
func (s *sharedQueue) Query() (a verbs.SRQAttr, err error) {
	err = s.exclusive("ibv_query_srq", func() error {
		rq := s.rq.Load()
		a = verbs.SRQAttr{MaxWR: uint32(rq.size), MaxSGE: rq.maxSGE, Limit: s.limit, UserData: s.userData}
		if s.xrcd != nil {
			a.XRCD, a.CQ = s.xrcd, s.cq
		}
		return nil
	})
	return a, err
}

// Close destroys the queue; posted receives vanish. It returns [verbs.ErrBusy] while queue pairs
// take from it or events are unacknowledged.
//
// Implements: ibv_destroy_srq.
func (s *sharedQueue) Close() error {
	const op = "ibv_destroy_srq"
	if s.closed.Load() {
		return nil
	}
	var err error
	if e := s.ctx.closing(op, func() {
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
		s.finish()
	}); e != nil {
		return e
	}
	return err
}

// Context returns the context of the queue.
func (s *sharedQueue) Context() verbs.Context { return s.ctx }

// UserData returns the value given at creation.
func (s *sharedQueue) UserData() uint64 { return s.userData }

// Num returns the number that XRC senders use; 0 if it is not an XRC queue.
func (s *sharedQueue) Num() uint32 { return s.srqn }

// String returns the queue's name.
func (s *sharedQueue) String() string {
	return fmt.Sprintf("SRQ %d of %s", s.number, s.ctx.dev.cfg.Name)
}

// tellLastWQE reports to the owners of queue pairs in ERR that these have completed their last
// receive of a shared queue. It runs after completions are published, so that the owner finds the
// completion.
//
// Implements: IBTA volume 1, 11.6.3.3 (last WQE reached).
func (d *device) tellLastWQE() {
	for _, q := range d.lastWQE {
		q.raise(verbs.EventQPLastWQEReached)
	}
	clear(d.lastWQE)
	d.lastWQE = d.lastWQE[:0]
}
