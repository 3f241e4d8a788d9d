package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Submit submits a request and returns its future, or the zero Future if s has a Sink. If no slot
// is free, Submit waits for a slot until ctx ends, or returns ErrQueueFull at once, depending on the
// mode m. Submit does not wait for the operation. An accepted request completes exactly once. The
// caller may reuse *s and *p when Submit returns. Submit does not allocate in steady state.
//
// Errors: ErrRequest for a request that a device would refuse, ErrQueueFailed with the cause,
// ErrQueueFull with NonBlock, the context's error, ErrNilContext. The memory of a slot is mapped and registered when the
// slot is first used, so the system's or the device's error is possible, too. If Submit returns an error, it
// has submitted nothing and has not called Lease.End. Submit calls ctx.Done before it waits, and
// ctx.Err after the wait. It holds no slot during these calls.
func (q *Queue) Submit(ctx context.Context, s *Send, p *Payload, m SubmitMode) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	n, err := q.check(s, p)
	if err != nil {
		return f, err
	}
	i, ch, err := q.acquireSlot(ctx, m)
	if err != nil {
		return f, err
	}
	return q.fillAndPush(i, ch, n, s, p, m), nil
}

// Fill fills a slot with a request that has a sink, and does not submit it. It returns the slot, which the
// caller must pass to PostFilled soon. In all other respects Fill is like Submit.
func (q *Queue) Fill(ctx context.Context, s *Send, p *Payload, m SubmitMode) (i uint32, err error) {
	if ctx == nil {
		return 0, ErrNilContext
	}
	n, err := q.check(s, p)
	if err == nil && s.Sink == nil {
		err = fmt.Errorf("%w: a request that is filled first needs a sink", ErrRequest)
	}
	if err != nil {
		return 0, err
	}
	i, ch, err := q.acquireSlot(ctx, m)
	if err == nil {
		q.fill(i, ch, n, s, p)
	}
	return i, err
}

// PostFilled submits the request in slot i, which Fill returned, behind all requests that were submitted
// earlier. The next pass posts it. Only the holder may call PostFilled.
func (q *Queue) PostFilled(i uint32) {
	if q.add(i) {
		q.ready()
	}
}

// acquireFreeSlot acquires a slot of the given list without waiting, and makes it. The first slot of the list is
// slot first of the queue. If the list is empty, acquireFreeSlot returns the error full.
func (q *Queue) acquireFreeSlot(free *ring.FreeList, first uint32, full error) (uint32, *chunk, error) {
	i, ok := free.Get()
	failed := q.failed.err.Load() != nil // loaded after the slot was acquired, as in acquireSlot
	switch {
	case failed && ok:
		return 0, nil, q.rejectFailed(free, i)
	case failed: // the list may be empty because reclaim has taken the slots
		return 0, nil, q.failed.get()
	case !ok:
		return 0, nil, full
	}
	ch, err := q.tab.make(first + i)
	if err != nil {
		return q.acquireMade(free, free.Get, first, i, err)
	}
	return first + i, ch, nil
}

// PostControl submits a control request as Submit does with NonBlock. Control requests have slots
// of their own, so a control request is accepted even if all other slots are taken. PostControl
// returns ErrQueueFull if ControlDepth control requests are submitted and not completed; then the completion of
// one of them is still to come. s.Sink must be set. If there is no memory for the request, the queue fails:
// what controls a connection cannot be left out.
func (q *Queue) PostControl(s *Send, p Payload) error {
	n, err := q.check(s, &p)
	if err != nil {
		return err
	}
	if q.ctrlFree == nil || s.Sink == nil {
		return fmt.Errorf("%w: a control request needs ControlDepth and a sink", ErrRequest)
	}
	i, ch, err := q.acquireFreeSlot(q.ctrlFree, uint32(q.cfg.SendDepth)+1, ErrQueueFull)
	if err != nil {
		if !errors.Is(err, ErrQueueFull) && q.failed.get() == nil {
			q.r.Defer(func() { q.breakWith(err) })
		}
		return err
	}
	q.fillAndPush(i, ch, n, s, &p, NonBlock)
	return nil
}

// fillAndPush fills slot i with the request s, which has n bytes, and submits the slot. The caller has
// acquired the slot.
func (q *Queue) fillAndPush(i uint32, ch *chunk, n uint32, s *Send, p *Payload, m SubmitMode) Future {
	f := q.fill(i, ch, n, s, p)
	q.sendStack.Push(i)
	q.submit(m)
	return f
}

// fill fills slot i, of chunk ch, with the request s, which has n bytes, and makes its future, if s has no sink.
func (q *Queue) fill(i uint32, ch *chunk, n uint32, s *Send, p *Payload) (f Future) {
	sl := &ch.slots[i%chunkSlots]
	sl.kind, sl.opcode, ch.bytes[i%chunkSlots] = kindOf(s.Opcode), uint8(s.Opcode), n
	sl.sink, sl.lease, sl.tag = s.Sink, s.Lease, s.Tag
	if s.Sink == nil {
		_, f = q.r.futures.NewIn(&sl.seat, q.r.driver)
	}
	q.fillSend(i, ch, s, p)
	if q.rec != nil {
		q.rec.submitted(q.r, i)
	}
	return f
}

// fillSend writes the work request of slot i. Queue.list sets Next and the flag SIGNALED later.
func (q *Queue) fillSend(i uint32, ch *chunk, s *Send, p *Payload) {
	sl, w := &ch.slots[i%chunkSlots], &ch.requests[i%chunkSlots]
	sges, addr := ch.elements(i)
	w.WRID = packWRID(q.id, i, sl.gen, sl.kind)
	w.SGList, w.Opcode = addr, s.Opcode
	w.Flags, w.RemoteSRQN = s.Flags, s.RemoteSRQ
	if w.ImmData = verbs.NetworkOrder(s.Imm); s.Opcode == verbs.WRSendWithInv {
		w.SetInvalidate(s.Invalidate)
	}
	switch {
	case sl.kind == KindAtomic || sl.kind >= KindAtomicWrite:
		fillNoPayload(i, ch, sl.kind, s)
		return
	case p.Inline != nil:
		buf, at := ch.inline(i)
		n := copy(buf, p.Header)
		n += copy(buf[n:], p.Inline)
		sges[0] = verbs.SGE{Addr: at, Length: uint32(n)}
		w.NumSGE = 1
		w.Flags |= verbs.SendInline
	case p.Header != nil:
		buf, at := ch.inline(i)
		sges[0] = verbs.SGE{Addr: at, Length: uint32(copy(buf, p.Header)), LKey: ch.block.lkey}
		w.NumSGE = 1 + uint32(copy(sges[1:], p.SGEs))
	case len(p.SGEs) == 1: // the most frequent case
		sges[0] = p.SGEs[0]
		w.NumSGE = 1
	default:
		w.NumSGE = uint32(copy(sges, p.SGEs))
	}
	if s.To.AH != nil {
		w.SetUD(s.To.AH.Handle(), s.To.QPNum, s.To.QKey)
		return
	}
	w.SetRDMA(s.Remote, s.RKey)
}
