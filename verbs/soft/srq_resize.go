package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Resize changes the capacity. Posted receives keep their order. Receives that queue pairs hold,
// or whose completions are not yet polled, count against the capacity until they are polled. The
// caller must hold the reactor's turn.
//
// Implements: ibv_modify_srq with IBV_SRQ_MAX_WR; the checks of rxe_srq.c (rxe_srq_chk_attr).
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

// out returns the number of receives posted, held or completed and not polled. Poster only.
func (q *recvQueue) out() uint64 {
	q.slots.collect()
	q.slots.release()
	return q.size - uint64(q.slots.free.n)
}

// moved returns a ring of capacity maxWR with the posted receives of q. The rest of the out
// receives come back to q, or to the rings before it; until then, as many slots of the new ring
// are withheld. The caller holds the token.
func (q *recvQueue) moved(maxWR, out uint32) *recvQueue {
	to := newSharedRing(maxWR, q.maxSGE)
	p := to.slots
	var head uint64
	for ; q.next != q.head.Load(); q.next++ {
		from := uint64(q.slots.order[q.next&q.mask])
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
		p.prior = append(q.slots.prior, q.slots)
	}
	return to
}
