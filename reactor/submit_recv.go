package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// PostRecv submits a receive. It never waits: ErrRecvFull when RecvDepth receives are out. It
// does not wake the reactor if m is Quiet. Sink must be set. Otherwise as Submit.
func (q *Queue) PostRecv(r *Recv, sges []verbs.SGE, m SubmitMode) error {
	err := q.pushRecv(r, sges)
	if err == nil {
		q.submit(m)
	}
	return err
}

// PostRecvLater is PostRecv for a receive that nobody can need before the queue posts
// something else: it is not told to the reactor, and goes with the next send or PostRecv
// of the queue, in the same turn and before the sends. So receives that the peer may use
// only when it was told of them are posted in one list with the message that tells it.
// Without anything that follows it stays here, and ends with Release.
func (q *Queue) PostRecvLater(r *Recv, sges []verbs.SGE) error {
	err := q.pushRecv(r, sges)
	// Order: pushed, then the cause is read. Release sets the cause, then takes the
	// stack; so it either takes ours, or we see the cause, and a turn refuses it.
	if err == nil && q.failed.err.Load() != nil {
		q.submit(Block)
	}
	return err
}

// pushRecv takes a slot, fills it and puts it on the stack, where nobody knows of it.
func (q *Queue) pushRecv(r *Recv, sges []verbs.SGE) error {
	if r.Sink == nil {
		return fmt.Errorf("%w: a receive without a sink", ErrRequest)
	}
	if q.recvFree == nil {
		return fmt.Errorf("%w: the queue has no receives", ErrRequest)
	}
	n, err := q.checkSGEs(sges, 0, q.maxRecv())
	if err != nil {
		return err
	}
	free, err := q.acquireFreeSlot(q.recvFree, ErrRecvFull)
	if err != nil {
		return err
	}
	i := uint32(q.cfg.sends()) + free
	sl := &q.tab.slots[i]
	sl.kind, q.tab.bytes[i] = KindRecv, n
	sl.sink, sl.lease, sl.tag = r.Sink, r.Lease, r.Tag
	w := &q.tab.recvWR[free]
	list, addr := q.tab.slotSGEs(i)
	w.WRID = packWRID(q.id, i, sl.gen, KindRecv)
	w.SGList, w.NumSGE = addr, uint32(copy(list, sges))
	if q.rec != nil {
		q.rec.submitted(q.r, i)
	}
	q.recvStack.Push(i)
	return nil
}

// gatherRecvs puts the submitted receives, which there are, into the turn. Holder only.
func (q *Queue) gatherRecvs() {
	first, _, n := q.recvStack.TakeAll()
	if q.released || q.sealed || q.qp == nil && q.srq == nil {
		q.refuse(q.recvStack.Next, first, n)
		return
	}
	t, base := q.tab, uint32(q.cfg.sends())
	for i, k := first, 0; k < n; k++ {
		w := &t.recvWR[i-base]
		w.Next = 0
		t.slots[i].posted = true
		if q.rec != nil {
			q.rec.posted(q.r, i, true)
		}
		if k < n-1 {
			next := q.recvStack.Next(i)
			w.Next = t.recvWRAddr(next - base)
			i = next
		}
	}
	q.recvs += n
	q.r.batch.Recvs = append(q.r.batch.Recvs, verbs.RecvGroup{QP: q.qp, SRQ: q.srq, Head: t.recvWRAddr(first - base), Count: n})
	q.r.recvOwners = append(q.r.recvOwners, q)
	q.r.recvFirst = append(q.r.recvFirst, first)
}
