package reactor

import (
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/verbs"
)

// PostRecv submits a receive. It never waits: if RecvDepth receives are submitted and not completed,
// PostRecv returns ErrRecvFull. If m has NoWakeup, it does not wake the loop. r.Sink must be set. In
// all other respects PostRecv is like Submit.
func (q *Queue) PostRecv(r *Recv, sges []verbs.SGE, m SubmitMode) error {
	err := q.pushRecv(r, sges)
	if err == nil {
		q.submit(m)
	}
	return err
}

// PostRecvLater is PostRecv for a receive that is not needed yet: the peer sends no message for this
// receive before this queue has sent another message. PostRecvLater does not put the queue on the
// ready list. The pass that posts the queue's next send or receive also posts this receive, before
// the sends. If no send or receive follows, the receive stays unposted until Idle or Release is
// called.
func (q *Queue) PostRecvLater(r *Recv, sges []verbs.SGE) error {
	err := q.pushRecv(r, sges)
	// Order: this goroutine pushes the receive, then loads the cause. Release stores the cause,
	// then takes the stack. So if Release does not take this receive, this goroutine sees the
	// cause. It then calls submit, so that a pass refuses the receive.
	if err == nil && q.failed.err.Load() != nil {
		q.submit(Block)
	}
	return err
}

// pushRecv acquires a slot, fills it and pushes it. It does not put the queue on the ready list.
func (q *Queue) pushRecv(r *Recv, sges []verbs.SGE) error {
	if r.Sink == nil {
		return fmt.Errorf("%w: a receive without a sink", ErrRequest)
	}
	if q.recvFree == nil {
		return fmt.Errorf("%w: the queue has no receives", ErrRequest)
	}
	// A receive may have room for more than any message: the device looks at a message's length alone.
	n, err := q.checkSGEs(sges, q.cfg.RecvSGE, 0, math.MaxUint64)
	if err != nil {
		return err
	}
	i, ch, err := q.acquireFreeSlot(q.recvFree, q.firstRecv, ErrRecvFull)
	if err != nil {
		return err
	}
	sl, w := &ch.slots[i%chunkSlots], ch.receive(i)
	sl.kind, ch.bytes[i%chunkSlots] = KindRecv, n
	sl.sink, sl.lease, sl.tag = r.Sink, r.Lease, r.Tag
	list, addr := ch.elements(i)
	w.WRID = packWRID(q.id, i, sl.gen, KindRecv)
	w.SGList, w.NumSGE = addr, uint32(copy(list, sges))
	if q.rec != nil {
		q.rec.submitted(q.r, i)
	}
	q.recvStack.Push(i)
	return nil
}

// gatherRecvs moves the submitted receives into the batch of the pass. There must be at least one
// receive. If the queue is released or sealed, or has neither a queue pair nor a shared receive queue,
// the receives end with an error instead. Only the holder calls gatherRecvs.
func (q *Queue) gatherRecvs() {
	first, _, n := q.recvStack.TakeAll()
	if q.released() || q.sealed || q.qp == nil && q.srq == nil {
		q.refuse(first, n)
		return
	}
	t := q.tab
	var before *verbs.RecvWR // the request before i
	for i, k := first, 0; k < n; k++ {
		ch := t.chunk(i)
		w := ch.receive(i)
		w.Next = 0
		if before != nil {
			before.Next = ch.receiveAddress(i)
		}
		before = w
		ch.slots[i%chunkSlots].posted = true
		if q.rec != nil {
			q.rec.posted(q.r, i, true)
		}
		i = q.links.Next(i) // of no meaning for the last
	}
	q.recvs += n
	q.r.batch.Recvs = append(q.r.batch.Recvs, verbs.RecvGroup{QP: q.qp, SRQ: q.srq, Head: t.chunk(first).receiveAddress(first), Count: n})
	q.r.recvOwners = append(q.r.recvOwners, q)
	q.r.recvFirst = append(q.r.recvFirst, first)
}
