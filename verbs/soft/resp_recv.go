package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// receive is a receive work request held by a queue pair: taken off a receive queue by the first
// packet of a SEND (or the last of a WRITE with immediate) and held until it completes. The zero
// value is none.
//
//	posted ── hold ──> held ── completeRecv, completeRecvError ──> completed
//
// So a message in progress keeps its receive while other queue pairs take from the same shared
// queue. A held receive always completes: with the message, with the error that ended it, or
// flushed when the queue pair goes to ERR, is reset or destroyed.
type receive struct {
	rq    *recvQueue // nil: none
	place uint64
	srq   *sharedQueue // nil: the queue pair's own
	pd    *protectionDomain
	cq    *completionQueue // where it completes
}

// size returns the capacity of the receive in bytes.
func (v *receive) size() uint64 { return v.rq.at(v.place).size }

// sges returns its elements.
func (v *receive) sges() []verbs.SGE { return v.rq.sges(v.place, v.rq.at(v.place).nsge) }

// nextRecv returns the receive of the next message: the held one, otherwise the first one posted,
// which hold takes. ok is false when none is posted.
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

// hold takes v, which nextRecv returned.
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

// pushRecv appends the completion of the held receive and ends the hold.
func (q *queuePair) pushRecv(solicited bool) *verbs.WC {
	v := &q.resp.recv
	id := v.rq.at(v.place).wrID // read now: a dead queue frees the slot, and the poster may reuse it
	wc := v.cq.push(&v.rq.workQueue, v.place, solicited)
	wc.WRID, wc.QPNum = id, q.number
	if q.xrc != nil && v.cq.dead.Load() {
		q.dev.breakLater(q) // overrun has broken the queue pairs that complete there, but not this one
	}
	*v = receive{}
	return wc
}

// completeRecv completes the held receive.
func (q *queuePair) completeRecv(h *wire.Header, op verbs.WCOpcode, n uint32) *verbs.WC {
	q.resp.ackMay = !q.resp.ackMust
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

// completeRecvError completes the held receive with an error status.
func (q *queuePair) completeRecvError(s verbs.WCStatus, vendor uint32) {
	wc := q.pushRecv(true)
	wc.Status, wc.VendorErr = s, vendor
}

// flushRecvs completes the held receive of a queue pair in ERR and, unless its receives are
// shared, every posted one. Receives in a shared queue stay for others (IBTA volume 1, 10.2.9):
// there the held receive is the last one.
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

// dropRecv ends the hold of a receive when the queue pair is reset or destroyed. A receive of its
// own queue vanishes with the queue. One of a shared queue completes as flushed: the owner of
// that queue needs its buffer back. The specification lets it leak (IBTA volume 1, 10.3.1: "WQE
// and data segment leakage may occur" unless LAST_WQE_REACHED was awaited), and rdma_rxe does
// (rxe_resp.c, RESPST_RESET); this device avoids it.
func (q *queuePair) dropRecv() {
	if q.resp.recv.srq != nil {
		q.completeRecvError(verbs.WCWRFlushErr, vendorFlush)
	}
	q.resp.recv = receive{}
}
