package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// dispatch hands one batch of completions to their operations. Holder only, as
// all of this file.
func (r *Reactor) dispatch(wcs []verbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		id, s, gen, kind := unpackWRID(wc.WRID)
		q := r.lookup(id)
		if q == nil || q.srq == nil && q.qpn != wc.QPNum || int(s) >= len(q.tab.slots) {
			r.stats.Stale++
			continue
		}
		sl := &q.tab.slots[s]
		if !sl.posted || sl.gen != gen || sl.kind != kind {
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

// endDispatch gives the slots of a run of completions of one queue back at
// once.
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

// sent retires the send of slot s and all before it: a queue pair completes
// its sends in order, so those succeeded, whatever became of s.
func (q *Queue) sent(s uint32, wc *verbs.WC) {
	r, n := q.r, 0
	for q.order.len() > 0 {
		i := q.order.pop()
		n++
		if i == s {
			break
		}
		q.succeeded(i)
	}
	r.outstanding -= n
	r.stats.Retired += uint64(max(n-1, 0))
	if wc.Status != verbs.WCSuccess {
		q.finish(s, Completion{Kind: q.tab.slots[s].kind}, q.failure(s, wc))
		return
	}
	q.succeeded(s)
}

// succeeded ends the operation of send slot i well. All of its outcome is known from
// the request, but for an atomic's answer. It is finish without the detours.
func (q *Queue) succeeded(i uint32) {
	sl := &q.tab.slots[i]
	var value uint64
	switch {
	case sl.kind < KindAtomic: // nearly all
	case sl.kind == KindAtomic:
		if value = q.tab.results[i]; value == unanswered {
			q.r.stats.Unanswered++
			q.finish(i, Completion{Kind: sl.kind}, ErrUnanswered)
			return
		}
	case sl.kind == KindBind || sl.kind == KindInvalidate:
		q.local++
	}
	if sl.kind != KindMarker {
		c := q.r.outcome(sl) // which may hold an old one: every field, and not by a literal, which costs more
		c.Tag, c.Value, c.Bytes, c.Imm, c.QPNum, c.SrcQP, c.Flags = sl.tag, value, sl.bytes, 0, 0, 0, 0
		c.Opcode, c.Kind = sl.opcode.Completion(), sl.kind
	}
	if q.rec != nil {
		q.rec.ended(q, i, sl.bytes, nil)
	}
	q.vacate(i, sl)
}

// outcome is where the outcome of a slot's operation goes that ended well: it is
// delivered when the turn is done.
func (r *Reactor) outcome(sl *slot) *Completion {
	if sl.sink != nil {
		o := r.note()
		o.sink = sl.sink
		return &o.c
	}
	p := sl.seat.Promise()
	c := p.Value()
	if c == nil {
		panic(fmt.Sprintf("reactor: %v completed twice", sl.kind))
	}
	r.out = append(r.out, p)
	return c
}

func (q *Queue) received(s uint32, wc *verbs.WC) {
	q.recvs--
	q.heard++
	c := Completion{Kind: KindRecv, QPNum: wc.QPNum}
	var err error
	if wc.Status == verbs.WCSuccess {
		c.Bytes, c.Flags, c.Opcode = wc.ByteLen, wc.Flags, wc.Opcode
		c.SrcQP = wc.SrcQP
		switch {
		case wc.Flags&verbs.WCWithImm != 0:
			c.Imm = wc.Imm()
		case wc.Flags&verbs.WCWithInv != 0:
			c.Imm = wc.ImmData
		}
	} else {
		err = q.failure(s, wc)
	}
	q.finish(s, c, err)
}

// failure turns a failed completion into an error. The first one of a queue
// that is not a flush is the cause of all that follow.
func (q *Queue) failure(s uint32, wc *verbs.WC) error {
	q.r.stats.Failed++
	sl := &q.tab.slots[s]
	e := &verbs.WCError{Status: wc.Status, QPNum: wc.QPNum, VendorErr: wc.VendorErr, WRID: wc.WRID, Op: sl.kind.String()}
	if q.srq != nil { // a failure of one queue pair, not of those who share
		return e
	}
	if wc.Status == verbs.WCWRFlushErr { // a consequence, never a cause
		if e.Cause = q.failed.get(); e.Cause == nil && q.onFlush != nil {
			q.r.notify(q.onFlush)
			q.onFlush = nil
		}
		return e
	}
	q.broken(e)
	return e
}

// broken fails the queue and tells its owner, once.
func (q *Queue) broken(cause error) {
	q.Fail(cause)
	if fn := q.onFail; fn != nil {
		q.onFail = nil
		q.r.notify(func() { fn(cause) })
	}
}

// finish ends the operation of slot i: the lease, then the slot, then, when the
// turn is done, the result (see deliver), which a future has by then.
func (q *Queue) finish(i uint32, c Completion, err error) {
	sl := &q.tab.slots[i]
	c.Tag = sl.tag
	if c.Kind == KindNone {
		c.Kind = sl.kind
	}
	switch r := q.r; {
	case sl.kind == KindMarker:
	case sl.sink != nil:
		o := r.note()
		o.sink, o.c, o.err = sl.sink, c, err
	default:
		p := sl.seat.Promise()
		if !p.Fill(c, err) {
			panic(fmt.Sprintf("reactor: %v completed twice", c.Kind))
		}
		r.out = append(r.out, p)
	}
	if q.rec != nil {
		bytes := sl.bytes
		if sl.kind == KindRecv && err == nil {
			bytes = c.Bytes
		}
		q.rec.ended(q, i, bytes, err)
	}
	q.vacate(i, sl)
}

// vacate frees a slot whose outcome is noted. A send's goes back in freeRetired, for a
// whole batch at once, as do the leases.
func (q *Queue) vacate(i uint32, sl *slot) {
	lease, kind := sl.lease, sl.kind
	sl.sink, sl.lease, sl.kind, sl.posted = nil, nil, KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	if kind == KindMarker {
		q.marker = false
		return
	}
	q.r.stats.Completions++
	if lease != nil {
		q.r.endLease(lease)
	}
	switch {
	case i < uint32(q.cfg.SendDepth):
		q.retired = append(q.retired, i)
	case i < uint32(q.cfg.sends()):
		q.ctrlFree.Put(i - uint32(q.cfg.SendDepth+1))
	default:
		q.recvFree.Put(i - uint32(q.cfg.sends()))
	}
}

// endLease ends a lease of one operation, with others of the same that ended before
// it: freeRetired tells.
func (r *Reactor) endLease(l Lease) {
	if l != r.lease {
		r.endLeases()
		r.lease = l
	}
	r.leases++
}

// endLeases tells the lease that was noted.
func (r *Reactor) endLeases() {
	l, n := r.lease, r.leases
	r.lease, r.leases = nil, 0
	if s, ok := l.(SharedLease); ok && n > 1 {
		s.EndN(n)
		return
	}
	for range n {
		l.End()
	}
}

// freeRetired ends what leases are left to end, and gives the finished sends' slots
// back. It follows every finish.
func (q *Queue) freeRetired() {
	if q.r.leases > 0 {
		q.r.endLeases()
	}
	if len(q.retired) == 0 {
		return
	}
	q.sendFree.PutN(q.retired)
	q.retired = q.retired[:0]
}
