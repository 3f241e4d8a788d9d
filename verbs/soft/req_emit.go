package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// windowPSNs is the maximum number of outstanding PSNs of a requester: enough to keep the
	// peer busy, few enough that no inbox grows large. It is far below wire.PSNWindow.
	windowPSNs = 512
	// readChunk is the maximum number of responses that one READ request packet asks for. A
	// longer READ asks for its pieces one after the other, so that the window bounds its
	// responses too and it takes one of the responder's resources. Pieces begin at fixed offsets,
	// so that a resent request never asks for more than the original.
	readChunk = 128
	// ackEvery is the maximum number of packets that a requester sends without requesting an
	// acknowledgement. The last packet of a message always requests one; the responder answers
	// once per Progress call.
	ackEvery = 32
	// copyLimit is the length up to which payload is copied into the packet: that is cheaper than
	// the guard of a reference.
	copyLimit = 64
)

// emit sends requests until none is left, or until the window, a fence, the READ limit or the
// link stops it.
func (q *queuePair) emit() {
	r := &q.req
	if r.rnrWait {
		return
	}
	sq := q.sq.Load()
	head := sq.head.Load()
	inRTS := q.current() == verbs.QPSRTS
	budget := 0
	if r.cur != head {
		budget = q.allowance()
	}
	r.noRoom = false
	sent := r.sent
	for ; r.cur != head; budget-- {
		if budget == 0 {
			if !inRTS && r.cur == r.fresh {
				break // in SQD no new request starts
			}
			q.yield(q.route)
			r.noRoom = q.stalled != nil
			break
		}
		w := sq.at(r.cur)
		fresh := r.cur == r.fresh
		if fresh && w.fast && inRTS {
			if n := q.emitFast(sq, head, budget); n > 0 {
				budget -= n - 1
				continue
			}
		}
		if fresh && !q.start(sq, w) {
			break
		}
		if w.local() {
			if !fresh { // already executed: not sent again
				r.cur++
			}
			continue
		}
		if w.failed || !q.emitPacket(sq, w) {
			break
		}
	}
	if r.bad && r.tail == r.badAt {
		w := sq.at(r.tail)
		q.fail(w.status, w.vendor)
		return
	}
	if r.sent > sent && r.window.lossy {
		r.trip.begin(r.sent, q.dev.now)
	}
	q.startTimer()
	if r.tail == r.fresh {
		q.drained()
	}
}

// drained handles an idle send queue: in SQD the queue pair has then drained.
func (q *queuePair) drained() {
	if !q.attr.SQDraining || q.current() != verbs.QPSSQD {
		return
	}
	q.attr.SQDraining = false
	if q.req.notifyDrained {
		q.req.notifyDrained = false
		q.raise(verbs.EventSQDrained)
	}
}

// start assigns PSNs to the request at fresh. It returns false when the request must wait or has
// failed.
func (q *queuePair) start(sq *sendQueue, w *sendWQE) bool {
	r := &q.req
	if q.current() == verbs.QPSSQD {
		return false
	}
	if w.failed {
		return false
	}
	if w.flags&verbs.SendFence != 0 && r.open > 0 {
		return false
	}
	if w.local() {
		return q.startLocal(sq, w)
	}
	status := verbs.WCSuccess
	switch {
	case w.length > q.dev.cfg.Limits.MaxMsgSize:
		status = verbs.WCLocLenErr
	case w.limited() && q.attr.MaxRdAtomic == 0:
		status = verbs.WCLocQPOpErr // it would wait forever
	case w.limited() && r.reads >= int(q.attr.MaxRdAtomic):
		return false
	case w.reads() && !q.writable(sq.sges(r.cur, w.nsge)):
		status = verbs.WCLocProtErr
	}
	if status != verbs.WCSuccess {
		q.markBad(w, r.cur, status, vendorLocal)
		return false
	}
	w.first = r.next
	w.npkts = 1
	if !w.word() {
		w.npkts = packets(w.length, q.mtu)
	}
	w.started = true
	if w.answered() {
		r.open++
	}
	if w.limited() {
		r.reads++
	}
	r.fresh++
	return true
}

// markBad stops the queue at a request that cannot proceed. It completes after those before it.
func (q *queuePair) markBad(w *sendWQE, pos uint64, s verbs.WCStatus, vendor uint32) {
	w.failed, w.status, w.vendor = true, s, vendor
	q.req.bad, q.req.badAt = true, pos
}

// emitPacket sends the next packet of the request at cur. It returns false when the window is
// closed or the request failed.
func (q *queuePair) emitPacket(sq *sendQueue, w *sendWQE) bool {
	r := &q.req
	at := uint32(r.next - w.first)
	span := uint32(1)
	if w.op == verbs.WRRDMARead {
		c := r.window.chunk
		if at%c == 0 && w.received < at {
			return false
		}
		span = min(c-at%c, w.npkts-at)
	}
	if out := r.next - r.acked; out > 0 && out+uint64(span) > r.window.psns {
		return false
	}
	h := &q.dev.scratch.tx
	*h = wire.Header{PSN: narrow(r.next), XRCSRQ: w.srqn}
	k := q.dev.p.Get()
	off := uint64(at) * uint64(q.mtu)
	rest := uint64(w.length) - off
	switch {
	case w.op == verbs.WRRDMARead:
		h.Opcode, h.AckReq = q.wire(wire.OpReadRequest), true
		h.VA, h.RKey = w.remote+off, w.rkey
		h.Length = uint32(min(rest, uint64(span)*uint64(q.mtu)))
	case w.op.IsAtomic():
		h.Opcode, h.AckReq = q.wire(wire.OpFetchAdd), true
		h.VA, h.RKey, h.SwapAdd = w.remote, w.rkey, w.arg1
		if w.op == verbs.WRAtomicCmpAndSwp {
			h.Opcode, h.Compare, h.SwapAdd = q.wire(wire.OpCompareSwap), w.arg1, w.arg2
		}
	case w.op == verbs.WRFlush:
		q.flushHeader(w, h)
	case w.op == verbs.WRAtomicWrite:
		q.atomicWriteHeader(w, h, k)
	default:
		n := uint32(min(rest, uint64(q.mtu)))
		if v := q.gather(sq, w, k, off, n); v != done {
			k.Release()
			if v != absent {
				q.markBad(w, r.cur, verbs.WCLocProtErr, vendorLocal)
			}
			return false
		}
		last := at+1 == w.npkts
		h.Opcode = q.wire(sendOp(w.op, at == 0, last))
		h.PadCount = wire.PadLen(int(n))
		r.sinceAckReq++
		if h.AckReq = last || r.sinceAckReq >= r.window.ackEvery; h.AckReq {
			r.sinceAckReq = 0
		}
		if at == 0 && (w.op == verbs.WRRDMAWrite || w.op == verbs.WRRDMAWriteWithImm) {
			h.VA, h.RKey, h.Length = w.remote, w.rkey, w.length
		}
		if last {
			h.Imm, h.InvKey = w.imm, w.imm // the opcode selects at most one of them
			h.Solicited = w.flags&verbs.SendSolicited != 0
		}
	}
	q.transmit(k, h)
	if r.next < r.sent {
		q.dev.again.Resent++
	}
	r.next += uint64(span)
	r.sent = max(r.sent, r.next)
	if at+span == w.npkts {
		r.cur++
	}
	return true
}

// sendOp returns the operation of a packet of a SEND or WRITE by its place in the message.
func sendOp(op verbs.WROpcode, first, last bool) wire.Op {
	o := wire.OpSendFirst
	if op == verbs.WRRDMAWrite || op == verbs.WRRDMAWriteWithImm {
		o = wire.OpWriteFirst
	}
	if last && op == verbs.WRSendWithInv {
		if first {
			return wire.OpSendOnlyInv
		}
		return wire.OpSendLastInv
	}
	// The six operations of each kind are consecutive: first, middle, last, last with immediate,
	// only, only with immediate.
	switch {
	case first && last:
		o += 4
	case last:
		o += 2
	case !first:
		o++
	}
	if last && op.HasImm() {
		o++
	}
	return o
}

// transmit sends a packet to the peer.
func (q *queuePair) transmit(k *fabric.Packet, h *wire.Header) {
	h.PKey, h.DestQP, h.MigReq = wire.DefaultPKey, q.attr.DestQPN, true
	k.SetHeader(h)
	k.Net.TrafficClass = q.trafficClass
	q.dev.p.SendTo(q.route, k)
}

// gather adds n bytes of a request's payload, from off on, to a packet: few bytes by copy, more
// by reference under the queue pair's guard. It returns done; absent if the packet waits for its payload; or noAccess.
func (q *queuePair) gather(sq *sendQueue, w *sendWQE, k *fabric.Packet, off uint64, n uint32) verdict {
	if n == 0 {
		return done
	}
	byRef := n > copyLimit && q.service.reliable // see ud.go
	if byRef {
		k.Holder = q.guard
	}
	if w.flags&verbs.SendInline != 0 {
		add(k, sq.payload(q.req.cur, w.length)[off:off+uint64(n)], byRef)
		return done
	}
	sges := sq.sges(q.req.cur, w.nsge)
	asked := false // whether the slow ones of the pieces are there
	for i, s := range sges {
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		part := uint32(min(uint64(s.Length)-off, uint64(n)))
		m, err := q.dev.resolve(q.pd, s.LKey, s.Addr+off, part, 0)
		if err != nil {
			return noAccess
		}
		if m.slow && !asked {
			if asked = true; !q.readableNow(&q.req.reading, q.dev.slowSpans(q.pd, sges[i:], off, int(n))...) {
				return absent
			}
		}
		b, _ := m.view(s.Addr+off, part)
		if !m.add(k, b, byRef) {
			return noAccess
		}
		if byRef {
			q.guard.note(m)
		}
		if n -= part; n == 0 {
			return done
		}
		off = 0
	}
	return noAccess
}

// writable reports whether all elements permit local writes.
func (q *queuePair) writable(sges []verbs.SGE) bool {
	for i := range sges {
		if s := &sges[i]; s.Length > 0 {
			if _, err := q.dev.resolve(q.pd, s.LKey, s.Addr, s.Length, verbs.AccessLocalWrite); err != nil {
				return false
			}
		}
	}
	return true
}
