package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// SubmitMode selects what Submit does if no slot is free, and whether it wakes a sleeping loop. It is a
// set of NonBlock and NoWakeup.
type SubmitMode uint8

// The submit modes.
const (
	// Block, the empty set, waits for a slot until the context ends, and wakes the loop.
	Block SubmitMode = 0
	// NonBlock returns ErrQueueFull if no slot is free, or if other submitters wait for a slot. The
	// holder may submit only with NonBlock.
	NonBlock SubmitMode = 1 << 0
	// NoWakeup does not wake the loop to post the request. Next, the caller must await the future on
	// the same goroutine, which then may drive and post the request, or call TryPass or Wake. Otherwise
	// the request stays unposted until another goroutine runs a pass.
	NoWakeup SubmitMode = 1 << 1
)

// Transfer is a WRITE or READ with at most one piece of local memory. On an XRC_SEND queue, a WRITE with immediate
// data is a Send, which names the queue that takes it. It has the fields of Send and
// Payload that such a request needs. Most requests are transfers.
type Transfer struct {
	Opcode verbs.WROpcode  // RDMA_WRITE, RDMA_WRITE_WITH_IMM or RDMA_READ
	Flags  verbs.SendFlags // as in Send; SOLICITED only for RDMA_WRITE_WITH_IMM
	Imm    uint32          // host order
	Remote uint64
	RKey   uint32
	Local  verbs.SGE // of length 0 if the request has no local memory

	Lease Lease // as in Send
	Sink  Sink
	Tag   uint64
}

// Transfer submits t as Submit does. The caller may reuse *t when Transfer returns.
func (q *Queue) Transfer(ctx context.Context, t *Transfer, m SubmitMode) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	i, ch, err := q.acquire(ctx, t, m)
	if err != nil {
		return f, err
	}
	if t.Sink == nil {
		_, f = q.r.futures.NewIn(&ch.slots[i%chunkSlots].seat, q.r.driver)
	}
	q.fillTransfer(i, ch, t, kindOf(t.Opcode))
	q.sendStack.Push(i)
	q.submit(m)
	return f, nil
}

func (q *Queue) acquire(ctx context.Context, t *Transfer, m SubmitMode) (uint32, *chunk, error) {
	if k := kindOf(t.Opcode); !q.isTransfer(t, k) {
		return 0, nil, q.whyNoTransfer(t, k)
	}
	return q.acquireSlot(ctx, m)
}

// isTransfer reports whether t, of kind k, is a valid transfer of this queue.
func (q *Queue) isTransfer(t *Transfer, k Kind) bool {
	return (k == KindWrite || k == KindRead) && q.requests.Has(t.Opcode) && t.Local.Length <= q.r.maxMessage &&
		(t.Flags == 0 || t.mayFlag() && (t.Flags&verbs.SendInline == 0 || k == KindWrite && uint64(t.Local.Length) <= uint64(q.inline)))
}

// mayFlag reports whether t.Opcode permits t.Flags. It does not check the length for INLINE.
func (t *Transfer) mayFlag() bool {
	return t.Flags&^allowedFlags == 0 && (t.Flags&verbs.SendSolicited == 0 || t.Opcode.HasImm())
}

// whyNoTransfer returns the reason why isTransfer is false.
func (q *Queue) whyNoTransfer(t *Transfer, k Kind) error {
	if k != KindWrite && k != KindRead || !q.requests.Has(t.Opcode) {
		return fmt.Errorf("%w: %v is not a WRITE or READ that a queue of type %v supports", ErrRequest, t.Opcode, q.cfg.Type)
	}
	switch {
	case t.Local.Length > q.r.maxMessage:
		return tooLong(uint64(t.Local.Length), uint64(q.r.maxMessage))
	case !t.mayFlag():
		return fmt.Errorf("%w: flags %v are not allowed with %v", ErrRequest, t.Flags, t.Opcode)
	}
	return q.checkInline(k, t.Opcode, t.Local.Length)
}

// acquireSlot acquires a slot, which is also room for one request in the send queue, and makes it. If no
// slot is free, m selects what acquireSlot does.
func (q *Queue) acquireSlot(ctx context.Context, m SubmitMode) (i uint32, ch *chunk, err error) {
	i, ok := q.sendFree.Get()
	if !ok {
		if i, err = q.waitSlot(ctx, m); err != nil {
			return 0, nil, err
		}
	}
	// Order: this goroutine acquires the slot, then loads the cause. Release stores the cause;
	// after that, reclaim collects the free slots. So either reclaim misses this slot and keeps the
	// arena, or this goroutine sees the cause.
	if q.failed.err.Load() != nil {
		return 0, nil, q.rejectFailed(q.sendFree, i)
	}
	if ch, err = q.tab.make(i); err != nil {
		return q.acquireMade(q.sendFree, q.sendFree.Collect, 0, i, err)
	}
	return i, ch, nil
}

// acquireMade frees slot i of a list, which was acquired and could not be made because of err. It acquires
// a free slot of the list that was made, or returns err if there is none. Without this search, one slot without
// memory would hide the others, because the list gives the slot first that was freed last. The argument take
// takes a free slot of the list, whose first slot is slot first of the queue.
func (q *Queue) acquireMade(free interface{ PutN([]uint32) }, take func() (uint32, bool), first, i uint32, err error) (uint32, *chunk, error) {
	var ch *chunk
	aside := []uint32{i}
	for ok := true; ok; {
		if i, ok = take(); !ok {
			break
		}
		if ch = q.tab.chunk(first + i); ch != nil {
			err = nil
			break
		}
		aside = append(aside, i)
	}
	free.PutN(aside)
	q.scheduleReclaim()
	return first + i, ch, err
}

// rejectFailed frees slot i and returns the cause of the queue's failure. The caller acquired the
// slot before it saw that the queue has failed.
func (q *Queue) rejectFailed(free interface{ Put(uint32) }, i uint32) error {
	free.Put(i)
	q.scheduleReclaim()
	return q.failed.get()
}

// waitSlot waits for a slot, or returns ErrQueueFull if m has NonBlock. Before the call, the caller has
// found no free slot.
func (q *Queue) waitSlot(ctx context.Context, m SubmitMode) (uint32, error) {
	if err := q.failed.get(); err != nil {
		return 0, err
	}
	if m&NonBlock != 0 {
		return 0, ErrQueueFull
	}
	w := DoneContext(ctx.Done()) // Done may be user code, so it is called before the wait for a slot
	// Wake the loop, because some of the slots may hold requests that were submitted with NoWakeup and
	// are still unposted.
	q.r.tok.Submitted()
	from := q.r.clock()
	i, err := q.sendFree.Wait(w)
	q.r.slotWaits.add(q.r.clock() - from)
	if err == nil {
		return i, nil
	}
	if cause := q.failed.get(); cause != nil {
		q.scheduleReclaim() // Wait may have acquired a slot and freed it again
		return 0, cause
	}
	if errors.Is(err, ring.ErrDone) {
		err = w.Cause(ctx, errContextDone)
	}
	return 0, fmt.Errorf("waiting for a slot of a send queue with %d slots: %w", q.cfg.SendDepth, err)
}

// fillTransfer fills slot i, which the caller owns, with t. The argument ch is the slot's chunk, and k is t's
// kind. fillTransfer does not make the future.
func (q *Queue) fillTransfer(i uint32, ch *chunk, t *Transfer, k Kind) {
	sl, w := &ch.slots[i%chunkSlots], &ch.requests[i%chunkSlots]
	sl.kind, sl.opcode, ch.bytes[i%chunkSlots] = k, uint8(t.Opcode), t.Local.Length
	sl.sink, sl.lease, sl.tag = t.Sink, t.Lease, t.Tag
	w.WRID = packWRID(q.id, i, sl.gen, k)
	at := ch.element(i)
	w.SGList, w.NumSGE = ch.elementAddr(at), 0
	if t.Local.Length > 0 {
		e := &ch.sges[at]
		e.Addr, e.Length, e.LKey = t.Local.Addr, t.Local.Length, t.Local.LKey
		w.NumSGE = 1
	}
	w.Opcode, w.Flags, w.ImmData = t.Opcode, t.Flags, verbs.NetworkOrder(t.Imm)
	w.SetRDMA(t.Remote, t.RKey)
	if q.rec != nil {
		q.rec.submitted(q.r, i)
	}
}

// submit puts the queue on the ready list. It wakes the loop unless m has NoWakeup. If the queue has
// failed, submit always wakes the loop, because only a pass refuses the request and reclaims the
// queue.
func (q *Queue) submit(m SubmitMode) {
	q.ready()
	if m&NoWakeup != 0 && q.failed.err.Load() == nil {
		q.r.tok.SubmittedBeforeDrive()
	} else {
		q.r.tok.Submitted()
	}
}

// Wake wakes the loop, so that it posts the requests that were submitted with NoWakeup. Any
// goroutine may call it; it does not block.
func (r *Reactor) Wake() { r.tok.Submitted() }
