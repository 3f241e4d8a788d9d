package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// receive is a receive work request in the hands of a queue pair: taken off a
// receive queue by the first packet of a SEND (or the last of a WRITE with
// immediate) and held until it completes. The zero value is none.
//
//	posted ── hold ──> held ── completeRecv, completeRecvError ──> completed
//
// A message that has begun so keeps its receive, whoever else takes from the
// same shared queue; and what a queue pair holds completes whatever becomes of
// it: with the message, with the error that ended it, or flushed when the
// queue pair goes to ERR, is reset or destroyed.
type receive struct {
	rq    *recvQueue // nil: none
	place uint64
	srq   *sharedQueue // nil: the queue pair's own
	pd    *protectionDomain
	cq    *completionQueue // where it completes
}

// size is how many bytes the receive takes.
func (v *receive) size() uint64 { return v.rq.at(v.place).size }

// sges are its elements.
func (v *receive) sges() []verbs.SGE { return v.rq.sges(v.place, v.rq.at(v.place).nsge) }

// nextRecv is the receive of the next message: the one that is held, or else
// the first one posted, which hold takes. ok is false when none is posted.
func (q *queuePair) nextRecv() (v receive, ok bool) {
	if v = q.resp.recv; v.rq != nil {
		return v, true
	}
	v.srq, v.pd, v.cq = q.srq, q.pd, q.recvCQ
	if q.xrc != nil {
		if v.srq = q.resp.to; v.srq == nil {
			return receive{}, false
		}
		v.cq = v.srq.cq
	}
	if v.srq != nil {
		v.rq, v.pd = v.srq.rq.Load(), v.srq.pd
	} else {
		v.rq = q.rq.Load()
	}
	v.place, ok = v.rq.front()
	return v, ok
}

// hold takes v, which nextRecv gave.
func (q *queuePair) hold(v receive) {
	if q.resp.recv.rq != nil {
		return
	}
	v.rq.next++
	q.resp.recv = v
	if v.srq != nil {
		v.srq.taken(v.rq)
	}
}

// pushRecv appends the completion of the receive that is held, which is held no
// longer.
func (q *queuePair) pushRecv(solicited bool) *verbs.WC {
	v := &q.resp.recv
	id := v.rq.at(v.place).wrID // now: a dead queue gives the place back, and the poster may have it
	wc := v.cq.push(&v.rq.workQueue, v.place, solicited)
	wc.WRID, wc.QPNum = id, q.number
	if q.xrc != nil && v.cq.dead.Load() {
		q.dev.breakLater(q) // the others that complete there know of it
	}
	*v = receive{}
	return wc
}

// completeRecv completes the receive that is held.
func (q *queuePair) completeRecv(h *wire.Header, op verbs.WCOpcode, n uint32) *verbs.WC {
	wc := q.pushRecv(h.Solicited)
	wc.Opcode, wc.ByteLen = op, n
	wc.SrcQP = q.attr.DestQPN
	if h.Opcode.Ext()&wire.ExtImm != 0 {
		wc.Flags = verbs.WCWithImm
		wc.ImmData = verbs.NetworkOrder(h.Imm)
	}
	if h.Opcode.Ext()&wire.ExtIETH != 0 {
		wc.Flags = verbs.WCWithInv
		wc.ImmData = h.InvKey // host order, unlike immediate data
	}
	return wc
}

// completeRecvError completes the receive that is held without success.
func (q *queuePair) completeRecvError(s verbs.WCStatus, vendor uint32) {
	wc := q.pushRecv(true)
	wc.Status, wc.VendorErr = s, vendor
}

// flushRecvs completes what a queue pair in ERR holds and, unless it shares
// them, every receive still posted. What is in a shared queue stays for others
// (IBTA volume 1, 10.2.9): there the last receive is the one that was held.
func (q *queuePair) flushRecvs() {
	if q.resp.recv.rq != nil {
		q.completeRecvError(verbs.WCWRFlushErr, vendorFlush)
	}
	if q.srq == nil && q.xrc == nil {
		for v, ok := q.nextRecv(); ok; v, ok = q.nextRecv() {
			q.hold(v)
			q.completeRecvError(verbs.WCWRFlushErr, vendorFlush)
		}
		return
	}
	if !q.resp.lastTold {
		q.resp.lastTold = true
		q.dev.lastWQE = append(q.dev.lastWQE, q)
	}
}

// dropRecv ends holding a receive when the queue pair is reset or destroyed.
// One of its own queue vanishes with the queue. One of a shared queue completes
// as flushed: its buffer belongs to the owner of that queue, who would not hear
// of it again. The specification lets it leak (IBTA volume 1, 10.3.1: "WQE and
// data segment leakage may occur" unless LAST_WQE_REACHED was awaited), and
// rdma_rxe does (rxe_resp.c, RESPST_RESET); we need not.
func (q *queuePair) dropRecv() {
	if q.resp.recv.srq != nil {
		q.completeRecvError(verbs.WCWRFlushErr, vendorFlush)
	}
	q.resp.recv = receive{}
}
