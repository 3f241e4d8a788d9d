package soft

import (
	"encoding/binary"
	"errors"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Vendor error codes tell where a failure was detected.
const (
	vendorLocal  = 0x10 // here, before any packet was sent
	vendorRetry  = 0x20 // here: retries used up
	vendorAnswer = 0x30 // here: in the responder's answer
	vendorRemote = 0x40 // by the responder; the low bits are the NAK code
	vendorRecv   = 0x50 // here, as responder
	vendorFlush  = 0xf9 // nowhere: it follows from another failure
)

// nakStatus is the completion status of a request that the responder refused (IBTA volume 1,
// 9.7.5.2.8).
var nakStatus = map[wire.NakCode]verbs.WCStatus{
	wire.NakInvalid:   verbs.WCRemInvReqErr,
	wire.NakAccess:    verbs.WCRemAccessErr,
	wire.NakOperation: verbs.WCRemOpErr,
}

// onResponse handles an acknowledgement or the answer to a READ or atomic. It reports whether the packet is kept, to be
// released later.
func (q *queuePair) onResponse(k *fabric.Packet, h *wire.Header) (kept bool) {
	if s := q.current(); s != verbs.QPSRTS && s != verbs.QPSSQD {
		return false
	}
	r := &q.req
	if r.storing != nil {
		return q.park(r.storing, k)
	}
	psn := extend(h.PSN, r.acked)
	if psn >= r.sent {
		return false // it acknowledges a packet that was never sent: C9-92, a ghost
	}
	if psn >= r.acked {
		q.prove()
	}
	switch op := h.Opcode.Op(); op {
	case wire.OpAcknowledge:
		q.onAck(psn, h.Syndrome)
	case wire.OpAtomicAck:
		q.onAtomicAnswer(psn, h.Orig)
	default:
		q.onReadAnswer(k, psn)
	}
	return r.storing != nil && q.park(r.storing, k)
}

func (q *queuePair) onAck(psn uint64, s wire.Syndrome) {
	r := &q.req
	switch s.Kind() {
	case wire.KindAck:
		q.ackTo(psn + 1)
		return
	case wire.KindRNRNak:
		if psn < r.acked {
			return
		}
		q.ackTo(psn)
		if psn == r.acked && q.current() != verbs.QPSErr {
			q.rnrDelay(psn, verbs.RNRTimeout(s.Value()))
		}
		return
	}
	if psn < r.acked {
		return
	}
	q.ackTo(psn)
	if q.current() == verbs.QPSErr {
		return
	}
	if s.Nak() == wire.NakSequence {
		// Behind an RNR NAK, some responders (rdma_rxe, Linux 6.12, check_psn) also refuse the packets that
		// followed. Nothing was lost then, and if that NAK comes after the delay, the resend is under way.
		// A responder sends one sequence NAK for a packet and is silent until that packet comes (responder.waiting;
		// rdma_rxe: sent_psn_nak). Others are late copies; the timer repairs a resend that was lost.
		if psn == r.acked && !r.notReady && !r.nakked {
			r.nakked = true
			q.resend(psn, verbs.WCRetryExcErr)
		}
		return
	}
	status, ok := nakStatus[s.Nak()]
	if !ok {
		status = verbs.WCRemOpErr
	}
	q.failAt(psn, status, vendorRemote|uint32(s.Nak()))
}

// awaited returns the READ or atomic whose answer is due next, and its position. psn is the PSN
// of the answer received; ok is false when it is not the one due.
func (q *queuePair) awaited(psn uint64) (w *sendWQE, pos uint64, ok bool) {
	r := &q.req
	sq := q.sq.Load()
	due := r.unread(sq)
	if due == none || psn < due {
		return nil, 0, false // already answered
	}
	if psn > due {
		q.ackTo(psn) // an earlier answer was lost
		return nil, 0, false
	}
	return sq.at(r.read), r.read, true
}

func (q *queuePair) onAtomicAnswer(psn, orig uint64) {
	w, pos, ok := q.awaited(psn)
	if !ok {
		return
	}
	if !w.op.IsAtomic() {
		q.failAt(psn, verbs.WCBadRespErr, vendorAnswer)
		return
	}
	if !q.scatterable(&q.req.storing, q.pd, q.sq.Load().sges(pos, w.nsge), 0, wordLen) {
		return // onResponse parks it
	}
	x := &q.dev.scratch
	binary.NativeEndian.PutUint64(x.word[:], orig)
	if err := q.dev.scatter(q.pd, q.sq.Load().sges(pos, w.nsge), 0, x.segs, false); err != nil {
		q.failAt(psn, verbs.WCLocProtErr, vendorAnswer)
		return
	}
	q.answered(w, psn)
}

func (q *queuePair) onReadAnswer(k *fabric.Packet, psn uint64) {
	w, pos, ok := q.awaited(psn)
	if !ok {
		return
	}
	off := uint64(w.received) * uint64(q.mtu)
	want := min(uint64(w.length)-off, uint64(q.mtu))
	if w.word() {
		want = 0 // the answer to a FLUSH or ATOMIC_WRITE is an empty READ response
	}
	if w.op.IsAtomic() || uint64(k.PayloadLen) != want {
		q.failAt(psn, verbs.WCBadRespErr, vendorAnswer)
		return
	}
	if want > 0 {
		if !q.scatterable(&q.req.storing, q.pd, q.sq.Load().sges(pos, w.nsge), off, int(want)) {
			return // onResponse parks it
		}
		if !q.dev.enterGuard(k) {
			return // the source region is closed: the next answer is a NAK
		}
		err := q.dev.scatter(q.pd, q.sq.Load().sges(pos, w.nsge), off, k.Payload, k.Foreign)
		if errors.Is(err, errLost) {
			return // the next answer is a NAK
		}
		if err != nil {
			q.failAt(psn, verbs.WCLocProtErr, vendorAnswer)
			return
		}
	}
	q.answered(w, psn)
}

// answered counts one answer packet, in order.
func (q *queuePair) answered(w *sendWQE, psn uint64) {
	if w.received++; w.received == w.npkts {
		w.finished = true
		q.req.open--
		if w.limited() {
			q.req.reads--
		}
	}
	q.progress(psn + 1)
}

// retire completes every fully acknowledged request, oldest first.
func (q *queuePair) retire(sq *sendQueue) {
	r := &q.req
	for r.tail < r.fresh {
		w := sq.at(r.tail)
		if w.failed || w.first+uint64(w.npkts) > r.acked {
			break
		}
		if sq.sigAll || w.flags&verbs.SendSignaled != 0 {
			wc := q.sendCQ.push(&sq.workQueue, r.tail, false)
			wc.WRID, wc.Opcode, wc.QPNum = w.wrID, w.op.Completion(), q.number
			wc.ByteLen = w.length
		}
		r.tail++
	}
	if r.cur < r.tail {
		r.cur = r.tail
	}
	if r.bad && r.tail == r.badAt {
		w := sq.at(r.tail)
		q.fail(w.status, w.vendor)
	}
}

// failAt fails the request that psn belongs to, after those before it have completed.
func (q *queuePair) failAt(psn uint64, s verbs.WCStatus, vendor uint32) {
	r := &q.req
	sq := q.sq.Load()
	r.seek(sq, psn)
	if r.cur == r.fresh {
		return
	}
	if r.cur == r.tail {
		q.fail(s, vendor)
		return
	}
	q.markBad(sq.at(r.cur), r.cur, s, vendor)
	// Earlier requests still lack an answer, which this responder can no longer give. Resend, so
	// that the timer ends the wait.
	r.seek(sq, r.acked)
	q.dev.activate(q)
}

// fail completes the oldest request with an error and moves the queue pair to ERR. The first
// error is the cause; the remaining requests are flushed.
func (q *queuePair) fail(s verbs.WCStatus, vendor uint32) {
	r := &q.req
	sq := q.sq.Load()
	if r.tail == sq.head.Load() {
		return
	}
	q.enterError() // first: it stops the peer's reading of this request's memory
	q.completeSend(sq, s, vendor)
}

// completeSend completes the oldest request with an error status.
func (q *queuePair) completeSend(sq *sendQueue, s verbs.WCStatus, vendor uint32) {
	r := &q.req
	wc := q.sendCQ.push(&sq.workQueue, r.tail, true)
	wc.WRID, wc.Status, wc.VendorErr, wc.QPNum = sq.at(r.tail).wrID, s, vendor, q.number
	r.tail++
}

// flush completes all posted requests of a queue pair in ERR, each queue in its order.
func (q *queuePair) flush() {
	q.flushSends()
	q.flushRecvs()
}
