package soft

import (
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// onRead handles a READ request; respond sends its responses.
func (q *queuePair) onRead(h *wire.Header, psn uint64) {
	r := &q.resp
	limit := int(q.attr.MaxDestRdAtomic)
	if q.attr.AccessFlags&verbs.AccessRemoteRead == 0 || h.Length > q.dev.cfg.Limits.MaxMsgSize ||
		r.fresh() >= limit { // more than agreed (rxe: too many RDMA/atomic)
		q.refuse(psn, wire.NakInvalid)
		return
	}
	if h.Length > 0 {
		if _, err := q.remote(h.RKey, h.VA, h.Length, verbs.AccessRemoteRead); err != nil {
			q.refuse(psn, wire.NakAccess)
			return
		}
	}
	r.msn++ // C9-148: counted when accepted, not when answered
	a := readAnswer(h, psn, q.mtu)
	r.expected = a.end
	q.queueAnswer(a)
}

func readAnswer(h *wire.Header, psn uint64, mtu uint32) answer {
	return answer{
		psn: psn, first: psn, end: psn + uint64(packets(h.Length, mtu)),
		va: h.VA, left: h.Length, rkey: h.RKey, read: true,
	}
}

// onDuplicate answers a request that was executed before.
//
//   - SEND, WRITE: acknowledged again (C9-105), up to that packet, so that the
//     acknowledgement does not skip an answer that was lost;
//   - READ: its data is sent again, from where the request asks. If the key is not valid any more because the
//     peer has invalidated it since then, the request is late: it is dropped (an invalid duplicate, as in class
//     D of rxe_resp.c, duplicate_request);
//   - atomic, ATOMIC_WRITE: answered from memory;
//   - FLUSH: answered.
func (q *queuePair) onDuplicate(h *wire.Header, psn uint64) {
	r := &q.resp
	switch h.Opcode.Op() {
	case wire.OpReadRequest:
		if q.xrc != nil && !q.addressedAgain(h) {
			return
		}
		a := readAnswer(h, psn, q.mtu)
		a.repeated = true
		if a.end > r.expected || r.pending() > 2*int(q.attr.MaxDestRdAtomic) {
			return
		}
		if h.Length > 0 {
			if _, err := q.remote(h.RKey, h.VA, h.Length, verbs.AccessRemoteRead); err != nil {
				if psn >= r.invalidated {
					q.refuseRead(psn)
				}
				return
			}
		}
		q.queueAnswer(a)
	case wire.OpCompareSwap, wire.OpFetchAdd, wire.OpAtomicWrite:
		q.againRemembered(psn)
	case wire.OpFlush:
		q.againFlush(psn)
	default:
		q.acknowledge(psn)
	}
}

// refuseRead is refuse for a READ that was accepted before. The message being received, and its
// receive, are not at fault: the receive is flushed.
func (q *queuePair) refuseRead(psn uint64) {
	q.raise(verbs.EventQPAccessErr)
	q.giveUp(psn, wire.NakAccess)
}

// queueAnswer inserts an answer by PSN, unless a queued one covers it.
func (q *queuePair) queueAnswer(a answer) {
	r := &q.resp
	a.pd = q.pd
	at := len(r.out)
	for ; at > r.outHead && r.out[at-1].psn > a.psn; at-- {
	}
	if at > r.outHead {
		if b := &r.out[at-1]; a.psn >= b.psn && a.end <= b.end {
			return
		}
	}
	if len(r.out) == cap(r.out) && 2*r.outHead > len(r.out) {
		// Reuse the room of sent answers. With a peer that always has requests outstanding the
		// list never becomes empty, and would grow forever.
		r.out, at = slices.Delete(r.out, 0, r.outHead), at-r.outHead
		r.outHead = 0
	}
	r.out = slices.Insert(r.out, at, a)
	q.dev.activate(q)
}

// respond sends pending answers in order, then a NAK or an acknowledgement, as far as the link
// has room. It leaves an acknowledgement that may be owed.
func (q *queuePair) respond() {
	r := &q.resp
	if r.outHead == len(r.out) && !r.nakDue && !r.ackDue {
		return
	}
	budget := q.allowance()
	for ; r.outHead < len(r.out); budget-- {
		if budget == 0 {
			q.yield(q.route)
			return
		}
		a := &r.out[r.outHead]
		if !q.sendAnswer(a) {
			if a.repeated && a.psn < r.invalidated {
				r.outHead++ // as in onDuplicate
				continue
			}
			// The region was closed in the middle of a READ. Later requests are no longer
			// answered.
			psn := a.psn
			r.out, r.outHead = r.out[:0], 0
			q.refuseRead(psn)
			break
		}
		if a.psn == a.end {
			r.outHead++
		}
	}
	if r.outHead == len(r.out) {
		r.out, r.outHead = r.out[:0], 0
	}
	if budget == 0 {
		q.yield(q.route)
		return
	}
	if r.nakDue {
		r.nakDue = false
		q.sendAck(r.nak, r.nakPSN)
		if r.ackPSN < r.nakPSN {
			q.forgetAck() // a NAK acknowledges the packets before it
		}
		if r.refused {
			q.enterError()
			return
		}
	}
	if r.ackDue && !q.mayOwe() {
		q.sendDueAck()
	}
}

// sendAnswer sends the next packet of an answer. It returns false when its data may no longer be
// read.
func (q *queuePair) sendAnswer(a *answer) bool {
	r := &q.resp
	h := &q.dev.scratch.tx
	if q.xrc != nil {
		q.pd = a.pd
	}
	*h = wire.Header{PSN: narrow(a.psn), Syndrome: wire.Ack(wire.CreditInvalid), MSN: wire.NewPSN(r.msn)}
	k := q.dev.p.Get()
	if !a.read {
		h.Opcode, h.Orig = q.wire(wire.OpAtomicAck), a.orig
	} else {
		n := min(a.left, q.mtu)
		h.Opcode = q.wire(readOp(a.psn == a.first, a.psn+1 == a.end))
		h.PadCount = wire.PadLen(int(n))
		if n > 0 {
			t, err := q.remote(a.rkey, a.va, n, verbs.AccessRemoteRead)
			if err != nil {
				k.Release()
				return false
			}
			if n > copyLimit {
				k.Holder = t.guard
				t.guard.lent = true
			}
			add(k, t.bytes(n), n > copyLimit)
		}
		a.va += uint64(n)
		a.left -= n
	}
	if r.ackDue && r.ackPSN <= a.psn {
		q.forgetAck() // the answer acknowledges it too
	}
	a.psn++
	q.transmit(k, h)
	return true
}

func readOp(first, last bool) wire.Op {
	switch {
	case first && last:
		return wire.OpReadRespOnly
	case first:
		return wire.OpReadRespFirst
	case last:
		return wire.OpReadRespLast
	}
	return wire.OpReadRespMiddle
}

// sendAck sends an acknowledgement or a NAK.
func (q *queuePair) sendAck(s wire.Syndrome, psn uint64) {
	k := q.dev.p.Get()
	k.HdrLen = wire.EncodeAck(&k.Hdr, q.wire(wire.OpAcknowledge), q.attr.DestQPN, narrow(psn), s, wire.NewPSN(q.resp.msn))
	if q.trafficClass != 0 {
		k.Net.TrafficClass = q.trafficClass
	}
	q.dev.p.SendTo(q.route, k)
}
