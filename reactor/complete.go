package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// dispatch ends the operations whose completions are in wcs. Only the holder of the turn calls the
// functions of this file.
func (r *Reactor) dispatch(wcs []verbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		id, s, gen, kind := unpackWRID(wc.WRID)
		q := r.lookup(id)
		if q == nil || q.srq == nil && q.qpn != wc.QPNum {
			r.stats.Stale++
			continue
		}
		sl := q.tab.posted(s)
		if sl == nil || sl.gen != gen || sl.kind != kind {
			r.stats.Stale++
			continue
		}
		if r.touched != q {
			r.endDispatch()
			r.touched = q
		}
		if kind == KindRecv {
			q.received(s, wc)
		} else {
			q.sent(s, wc)
		}
	}
	r.endDispatch()
}

// endDispatch frees the slots of the requests that have ended on r.touched, the queue of the latest
// completion. It runs before a completion of another queue is dispatched, and after the last
// completion.
func (r *Reactor) endDispatch() {
	if q := r.touched; q != nil {
		r.touched = nil
		q.freeRetired()
		q.checkIdle()
	}
}

func (r *Reactor) lookup(id uint32) *Queue {
	if int(id) < len(r.queues) {
		return r.queues[id]
	}
	return nil
}

// sent handles wc, the completion of the send in slot s. It ends this send, and retires
// all earlier sends of the queue. A queue pair completes its sends in order, and a send that fails
// always has a completion. The earlier sends had no completion, so they succeeded, even if wc is a
// failed completion.
func (q *Queue) sent(s uint32, wc *verbs.WC) {
	r, n := q.r, 0
	for q.order.n > 0 {
		i := q.order.pop()
		n++
		if i == s {
			break
		}
		q.completeFast(i)
	}
	r.outstanding -= n
	r.stats.Retired += uint64(max(n-1, 0))
	if wc.Status != verbs.WCSuccess {
		q.finish(s, Completion{Kind: q.tab.slot(s).kind}, q.failure(s, wc))
		return
	}
	q.completeFast(s)
}

// completeFast ends the operation of send slot i, which the device has carried out successfully.
// completeFast needs no verbs.WC, because the request determines the result. For most operations
// completeFast does the work of the method finish, with fewer branches and calls. For the other
// operations it calls completeSlow.
func (q *Queue) completeFast(i uint32) {
	r, ch := q.r, q.tab.chunk(i)
	sl := &ch.slots[i%chunkSlots]
	if sl.kind >= KindAtomic || i >= uint32(q.cfg.SendDepth) || q.rec != nil {
		q.completeSlow(i, sl)
		return
	}
	var c *Completion
	if sl.sink != nil {
		o := r.addOutcome(q)
		o.sink, sl.sink = sl.sink, nil
		c = &o.c
	} else {
		p := sl.seat.Promise()
		if c = p.Value(); c == nil {
			panic(fmt.Sprintf("reactor: %v completed twice", sl.kind))
		}
		r.filled = append(r.filled, p)
	}
	// *c may hold an old result, so every field is set. Assigning a composite literal would be slower.
	c.Tag, c.Value, c.Bytes, c.Imm, c.QPNum, c.SrcQP, c.Flags = sl.tag, 0, ch.bytes[i%chunkSlots], 0, 0, 0, 0
	c.SLID, c.SL, c.DLIDPathBits = 0, 0, 0
	c.Opcode, c.Kind = verbs.WROpcode(sl.opcode).Completion(), sl.kind
	if sl.lease != nil {
		r.endLease(sl.lease)
		sl.lease = nil
	}
	sl.kind, sl.posted = KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	q.retired = append(q.retired, i)
}

// completeSlow ends the operations that completeFast does not handle: control requests, the marker,
// requests of KindAtomic and of the kinds after KindAtomic, and all requests of a queue with a
// recorder.
func (q *Queue) completeSlow(i uint32, sl *slot) {
	c := Completion{Bytes: q.tab.bytes(i), Opcode: verbs.WROpcode(sl.opcode).Completion()}
	var err error
	switch sl.kind {
	case KindAtomic:
		result, _ := q.tab.chunk(i).result(i)
		if c.Value = *result; c.Value == unanswered { // see complete_unanswered.go
			q.r.stats.Unanswered++
			c, err = Completion{}, ErrUnanswered
		}
	case KindBind, KindInvalidate:
		q.localSends++
	}
	q.finish(i, c, err)
}

func (q *Queue) received(s uint32, wc *verbs.WC) {
	q.recvs--
	q.peerReceives++
	if wc.Status != verbs.WCSuccess {
		q.finish(s, Completion{Kind: KindRecv, QPNum: wc.QPNum}, q.failure(s, wc))
		return
	}
	if q.rec != nil {
		var c Completion
		c.setReceived(wc)
		q.finish(s, c, nil)
		return
	}
	// The rest does the work of the method finish without two copies of the Completion.
	r, sl := q.r, q.tab.slot(s)
	var c *Completion
	if sl.sink != nil {
		o := r.addOutcome(q)
		o.sink, sl.sink = sl.sink, nil
		c = &o.c
	} else {
		p := sl.seat.Promise()
		if c = p.Value(); c == nil {
			panic("reactor: RECV completed twice")
		}
		r.filled = append(r.filled, p)
	}
	c.Tag = sl.tag
	c.setReceived(wc)
	if sl.lease != nil {
		r.endLease(sl.lease)
		sl.lease = nil
	}
	sl.kind, sl.posted = KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	q.retiredRecvs = append(q.retiredRecvs, s-q.firstRecv)
}

// setReceived sets all fields except Tag from the successful completion of a receive.
func (c *Completion) setReceived(wc *verbs.WC) {
	c.Value, c.Bytes, c.Imm, c.QPNum, c.SrcQP = 0, wc.ByteLen, 0, wc.QPNum, wc.SrcQP
	c.SLID, c.SL, c.DLIDPathBits = wc.SLID, wc.SL, wc.DLIDPathBits
	c.Flags, c.Opcode, c.Kind = wc.Flags, wc.Opcode, KindRecv
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		c.Imm = wc.Imm()
	case wc.Flags&verbs.WCWithInv != 0:
		c.Imm = wc.ImmData
	}
}

// failure returns the error for wc, a failed completion of slot s. It also fails the queue with this
// error, except in two cases: the status of wc is WR_FLUSH_ERR, or wc belongs to a shared receive.
func (q *Queue) failure(s uint32, wc *verbs.WC) error {
	q.r.stats.Failed++
	sl := q.tab.slot(s)
	e := &verbs.WCError{Status: wc.Status, QPNum: wc.QPNum, VendorErr: wc.VendorErr, WRID: wc.WRID, Op: sl.kind.String()}
	if q.srq != nil { // a failure of one queue pair must not fail the SharedRecv, which serves other queue pairs too
		return e
	}
	if wc.Status == verbs.WCWRFlushErr { // the queue pair was in ERR already, so wc does not tell the cause
		if e.Cause = q.failed.get(); e.Cause == nil && q.onFlush != nil {
			q.r.notifyLater(q.onFlush)
			q.onFlush = nil
		}
		return e
	}
	q.breakWith(e)
	return e
}

// breakWith fails the queue with cause. The first call also notifies the queue's owner (OnFail).
func (q *Queue) breakWith(cause error) {
	q.Fail(cause)
	if fn := q.onFail; fn != nil {
		q.onFail = nil
		q.r.notifyLater(func() { fn(cause) })
	}
}

// finish ends the operation of slot i: it records the outcome, and gives back the lease
// and the slot (freeSlot). At the end of the pass, Reactor.deliver settles the future or calls the
// sink.
func (q *Queue) finish(i uint32, c Completion, err error) {
	sl := q.tab.slot(i)
	c.Tag = sl.tag
	if c.Kind == KindNone {
		c.Kind = sl.kind
	}
	switch r := q.r; {
	case sl.kind == KindMarker:
	case sl.sink != nil:
		o := r.addOutcome(q)
		o.sink, o.c, o.err = sl.sink, c, err
	default:
		p := sl.seat.Promise()
		if !p.Fill(c, err) {
			panic(fmt.Sprintf("reactor: %v completed twice", c.Kind))
		}
		r.filled = append(r.filled, p)
	}
	if q.rec != nil {
		bytes := q.tab.bytes(i)
		if sl.kind == KindRecv && err == nil {
			bytes = c.Bytes
		}
		q.rec.ended(q, i, bytes, err)
	}
	q.freeSlot(i, sl)
}
