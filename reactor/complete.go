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
	for q.order.len() > 0 {
		i := q.order.pop()
		q.r.outstanding--
		if i == s {
			break
		}
		q.r.stats.Retired++
		c, err := q.success(i)
		q.finish(i, c, err)
	}
	if wc.Status != verbs.WCSuccess {
		q.finish(s, Completion{Kind: q.tab.slots[s].kind}, q.failure(s, wc))
		return
	}
	c, err := q.success(s)
	q.finish(s, c, err)
}

// success is the outcome of send slot i, all of it known from the request but an
// atomic's answer.
func (q *Queue) success(i uint32) (Completion, error) {
	sl := &q.tab.slots[i]
	c := Completion{Bytes: sl.bytes, Kind: sl.kind, Opcode: sl.opcode.Completion()}
	switch {
	case sl.kind < KindAtomic: // nearly all
	case sl.kind == KindAtomic:
		if c.Value = q.tab.results[i]; c.Value == unanswered {
			q.r.stats.Unanswered++
			return Completion{Kind: sl.kind}, ErrUnanswered
		}
	case sl.kind == KindBind || sl.kind == KindInvalidate:
		q.local++
	}
	return c, nil
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
// turn is done, the result (see deliver), which a future has by then. A send's slot
// goes back in freeRetired, for a whole batch at once.
func (q *Queue) finish(i uint32, c Completion, err error) {
	sl := &q.tab.slots[i]
	c.Tag = sl.tag
	if c.Kind == KindNone {
		c.Kind = sl.kind
	}
	sink, lease, kind := sl.sink, sl.lease, sl.kind
	sl.sink, sl.lease, sl.kind, sl.posted = nil, nil, KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	if kind == KindMarker {
		q.marker = false
		return
	}
	q.r.stats.Completions++
	if lease != nil {
		lease.End()
	}
	switch sends := uint32(q.cfg.sends()); {
	case i >= sends:
		q.recvFree.Put(i - sends)
	case i > uint32(q.cfg.SendDepth):
		q.ctrlFree.Put(i - uint32(q.cfg.SendDepth+1))
	default:
		q.retired = append(q.retired, i)
	}
	if sink != nil {
		q.r.out = append(q.r.out, delivery{sink: sink})
		q.r.sunk = append(q.r.sunk, outcome{c, err})
		return
	}
	p := sl.seat.Promise()
	if !p.Fill(c, err) {
		panic(fmt.Sprintf("reactor: %v completed twice", c.Kind))
	}
	q.r.out = append(q.r.out, delivery{promise: p})
}

// freeRetired gives the finished sends' slots back.
func (q *Queue) freeRetired() {
	if len(q.retired) == 0 {
		return
	}
	q.sendFree.PutN(q.retired)
	q.retired = q.retired[:0]
}
