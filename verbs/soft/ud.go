package soft

import (
	"math"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The sending half of UC and UD queue pairs. Requests leave one after the other, and each
// completes when its last packet is sent, because there is no acknowledgement.
//
//	RTS ── a request fails here: it completes with its error ──> SQE
//	 ^                                                            │ posted requests are flushed;
//	 └──────────────── modify (the rest is flushed) ──────────────┘ receives continue
//
// # Payload ownership
//
// A completion returns the buffer to its owner, so a packet must not point into it: the receiver
// may not have run yet. So payload is copied into the packet when it is sent, which is also when
// an adapter has read it. The second copy costs about 0.05 ns a byte. In exchange an unreliable
// packet needs no guard, and a multicast may reach any number of receivers at different times.
//
// Implements: IBTA volume 1, 9.8.2 and 9.8.3 (unreliable services), the requester's side; 10.3.1
// (SQE).

const (
	// maxUC is the payload of a UC packet on a port with the jumbo MTU: the largest copy that the
	// pool keeps (package fabric).
	maxUC = 32 << 10
	// maxUD is the longest datagram on a port with the jumbo MTU. A datagram is one packet, and
	// applications size every receive for its maximum length.
	maxUD = 4096
)

// unreliableMTU returns the payload bytes of a packet of this queue pair. A datagram may be as
// long as the port's MTU (C10-93.1.1), whatever QPAttr contains.
func (q *queuePair) unreliableMTU() uint32 {
	if q.kind == verbs.QPTUD {
		return min(q.dev.cfg.MTU.Bytes(), maxUD)
	}
	if q.attr.PathMTU == verbs.MTUJumbo {
		return maxUC
	}
	return q.attr.PathMTU.Bytes()
}

// workUnreliable does the pending work of an activated UC or UD queue pair in state s.
func (q *queuePair) workUnreliable(s verbs.QPState) {
	switch s {
	case verbs.QPSRTS, verbs.QPSSQD:
		q.emitUnreliable()
	case verbs.QPSSQE:
		q.flushSends()
	}
}

// emitUnreliable sends requests until none is left, one fails, or the link is full. In SQD it
// only finishes the request in progress.
func (q *queuePair) emitUnreliable() {
	r := &q.req
	sq := q.sq.Load()
	head := sq.head.Load()
	for budget := emitPerProgress; r.tail != head; budget-- {
		if budget == 0 {
			q.dev.activate(q)
			return
		}
		if q.pace.full() {
			return
		}
		r.cur = r.tail
		w := sq.at(r.cur)
		if !w.started {
			if q.current() == verbs.QPSSQD {
				break
			}
			w.started, w.first, w.npkts = true, r.next, packets(w.length, q.mtu)
			r.fresh++
		}
		if w.local() { // BIND_MW; LOCAL_INV is for RC only
			if !q.bind(w) {
				q.failUnreliable(sq, verbs.WCMWBindErr)
				return
			}
			q.sentUnreliable(sq, w)
			continue
		}
		if rt := q.heading(w); rt != nil && q.dev.p.Room(rt) == 0 {
			q.stallOn(rt)
			return
		}
		s, waits := q.emitOne(sq, w)
		if waits {
			return
		}
		if s != verbs.WCSuccess {
			q.failUnreliable(sq, s)
			return
		}
		r.next++
		if r.next == w.first+uint64(w.npkts) {
			q.sentUnreliable(sq, w)
		}
	}
	if r.tail == r.fresh {
		q.drained()
	}
}

// heading returns the link that a request uses. It returns nil for a group, which uses many
// links, and for an unknown address handle.
func (q *queuePair) heading(w *sendWQE) *fabric.Route {
	if q.kind != verbs.QPTUD {
		return q.route
	}
	if ah := q.dev.findAH(w.remote); ah != nil {
		return ah.route
	}
	return nil
}

// emitOne sends the next packet of the request at cur. It reports whether the request waits for its payload.
func (q *queuePair) emitOne(sq *sendQueue, w *sendWQE) (s verbs.WCStatus, waits bool) {
	r := &q.req
	at := uint32(r.next - w.first)
	off := uint64(at) * uint64(q.mtu)
	n := uint32(min(uint64(w.length)-off, uint64(q.mtu)))
	first, last := at == 0, at+1 == w.npkts
	longest := q.dev.cfg.Limits.MaxMsgSize
	var ah *addressHandle
	if q.kind == verbs.QPTUD {
		longest = q.mtu
		if ah = q.dev.findAH(w.remote); ah == nil || ah.pd != q.pd {
			return verbs.WCLocQPOpErr, false // as rxe_req.c: no address vector
		}
	}
	if w.length > longest {
		return verbs.WCLocLenErr, false
	}
	k := q.dev.p.Get()
	if v := q.gather(sq, w, k, off, n); v != done {
		k.Release()
		return verbs.WCLocProtErr, v == absent
	}
	k.Holder = q.pace
	h := &q.dev.scratch.tx
	*h = wire.Header{Opcode: q.wire(sendOp(w.op, first, last)), PSN: narrow(r.next), PadCount: wire.PadLen(int(n))}
	if last {
		h.Imm = w.imm
		h.Solicited = w.flags&verbs.SendSolicited != 0
	}
	if ah != nil {
		q.transmitTo(ah, k, h, w)
		return verbs.WCSuccess, false
	}
	if first && (w.op == verbs.WRRDMAWrite || w.op == verbs.WRRDMAWriteWithImm) {
		h.VA, h.RKey, h.Length = w.remote, w.rkey, w.length
	}
	q.pace.out.Add(1)
	q.transmit(k, h)
	return verbs.WCSuccess, false
}

// sentUnreliable completes the request at tail, whose last packet has been sent.
func (q *queuePair) sentUnreliable(sq *sendQueue, w *sendWQE) {
	r := &q.req
	if sq.sigAll || w.flags&verbs.SendSignaled != 0 {
		wc := q.sendCQ.push(&sq.workQueue, r.tail, false)
		wc.WRID, wc.Opcode, wc.QPNum, wc.ByteLen = w.wrID, w.op.Completion(), q.number, w.length
	}
	r.tail++
}

// failUnreliable completes the request at tail with an error and moves the queue pair to SQE.
//
// Implements: IBTA volume 1, 10.3.1. (rdma_rxe goes to ERR.)
func (q *queuePair) failUnreliable(sq *sendQueue, s verbs.WCStatus) {
	q.completeSend(sq, s, vendorLocal)
	q.attr.SQDraining = false
	q.enter(verbs.QPSSQE) // flushes the remaining requests
}

// flushSends completes all requests still posted to the send queue as flushed.
func (q *queuePair) flushSends() {
	sq := q.sq.Load()
	r := &q.req
	for head := sq.head.Load(); r.tail != head; {
		q.completeSend(sq, verbs.WCWRFlushErr, vendorFlush)
	}
	r.cur, r.fresh, r.read, r.open, r.reads, r.bad = r.tail, r.tail, r.tail, 0, 0, false
}

// beginUnreliable initializes the queue pair from the attributes of RTR.
func (q *queuePair) beginUnreliable() {
	q.mtu = q.unreliableMTU()
	if q.kind == verbs.QPTUC {
		q.takeRoute()
	}
	q.resp.begin(&q.attr)
}

// onUnreliable handles a packet for a UC queue pair. Sequence is checked only within a message: a
// gap, a repetition or an error in the middle drops the message silently, and the next First or
// Only begins a new one. A message that is repeated as a whole is received twice. The receive of
// a dropped message is held for the next one (class D1), unless it belongs to a shared queue.
// That one completes with an error (class E), because this peer may never send again and the
// owner of the queue needs its buffer.
//
//	            packet in sequence, in its place
//	             ┌────┐
//	             v    │          any other Middle or Last, or an error
//	message ─────┴────┘ ────────────────────────────────────────────────> dropping
//	   ^  First or Only, whatever its PSN                                    │
//	   └─────────────────────────────────────────────────────────────────────┘
//
// Implements: IBTA volume 1, 9.8.2.2 (UC responder); error classes D, D1 and E as rxe_resp.c
// (do_class_d1e_error), except that a First that cuts a message short is itself accepted
// (rdma_rxe drops it).
func (q *queuePair) onUnreliable(k *fabric.Packet, h *wire.Header) {
	r := &q.resp
	if !r.established {
		q.establish()
	}
	op := h.Opcode
	starts, ends := op.Starts(), op.Ends()
	psn := extend(h.PSN, r.expected)
	if starts {
		if r.kind != noMessage { // the message in progress will not complete
			q.dropMessage()
			q.dev.counters.Sequence++
		}
	} else if r.kind == noMessage || psn != r.expected {
		q.dropMessage()
		r.expected = psn + 1
		q.dev.counters.Sequence++
		return
	}
	r.expected = psn + 1
	n := uint64(k.PayloadLen)
	v := invalid
	if n <= uint64(q.mtu) && (ends || n == uint64(q.mtu)) && (starts || !ends || n > 0) {
		if isWrite(op.Op()) {
			v = q.putWrite(k, h, starts, ends)
		} else {
			v = q.putSend(k, starts)
		}
	}
	switch {
	case v == badReceive:
		q.failRecv()
	case v != done:
		q.dropMessage()
		q.dev.counters.drop(v)
	case ends:
		q.endUnreliable(h)
	}
}

// dropMessage ends the message in progress, if there is one.
func (q *queuePair) dropMessage() {
	q.resp.kind = noMessage
	if q.resp.recv.srq != nil {
		q.completeRecvError(verbs.WCRemInvReqErr, vendorRecv)
	}
}

// endUnreliable completes the receive, if any, after the last packet of a message.
func (q *queuePair) endUnreliable(h *wire.Header) {
	r := &q.resp
	switch {
	case r.kind == sendMessage:
		q.completeRecv(h, verbs.WCRecv, uint32(min(r.recvOff, math.MaxUint32)))
	case h.Opcode.Ext()&wire.ExtImm != 0:
		q.completeRecv(h, verbs.WCRecvRDMAWithImm, r.total)
	}
	r.kind = noMessage
}

// failRecv completes a receive whose own elements are invalid, and moves the queue pair to ERR
// (class A, as rxe_resp.c: malformed WQE).
func (q *queuePair) failRecv() {
	if v, ok := q.nextRecv(); ok {
		q.hold(v)
		q.completeRecvError(verbs.WCLocProtErr, vendorRecv)
	}
	q.enterError()
}

// isWrite reports whether op is a WRITE, of the SEND and WRITE operations.
func isWrite(op wire.Op) bool { return op >= wire.OpWriteFirst && op <= wire.OpWriteOnlyImm }
