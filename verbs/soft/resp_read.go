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
	r.remember(result{psn: psn, va: h.VA, n: h.Length, rkey: h.RKey, read: true}, limit)
	q.queueAnswer(a)
}

// repeats reports whether a is a part of a READ that is remembered: the same key, and the address that belongs to its
// PSN. A requester repeats from the first packet that it lacks, so a may begin in the middle.
func (r *responder) repeats(a *answer, mtu uint32) bool {
	for i := range r.results {
		o := &r.results[i]
		if !o.read || a.rkey != o.rkey || a.psn < o.psn || a.psn >= o.psn+uint64(packets(o.n, mtu)) {
			continue
		}
		if off := (a.psn - o.psn) * uint64(mtu); a.va == o.va+off && uint64(a.left) <= uint64(o.n)-off {
			return true
		}
	}
	return false
}

// forget forgets the READs with a key that the peer has invalidated: it has what it wanted to read with the key, so
// that a repetition is late, and not an error.
func (r *responder) forget(key uint32) {
	for i := range r.results {
		if r.results[i].read && r.results[i].rkey == key {
			r.results[i] = result{} // PSN 0 is before every connection's first
		}
	}
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
//   - READ: its data is sent again, from where the request asks, if it is one of the last READs, as many as the peer
//     may have outstanding. If its key is not valid any more, it is answered by a NAK (respond). Anything else is a
//     copy of a request that was answered long ago, or forged: it is dropped (an invalid duplicate, as in class D of
//     rxe_resp.c, duplicate_request). A NAK to it could fail a rdma_rxe requester in the middle of another READ;
//   - atomic, ATOMIC_WRITE: answered from memory;
//   - FLUSH: answered.
//
// Half of all PSNs are old, so nothing here changes the state of the responder or of the queue pair.
func (q *queuePair) onDuplicate(h *wire.Header, psn uint64) {
	switch h.Opcode.Op() {
	case wire.OpReadRequest:
		q.againRead(h, psn)
	case wire.OpCompareSwap, wire.OpFetchAdd, wire.OpAtomicWrite:
		q.againRemembered(psn)
	case wire.OpFlush:
		q.againFlush(psn)
	default:
		q.acknowledge(psn)
	}
}

// againRead answers a repeated READ.
func (q *queuePair) againRead(h *wire.Header, psn uint64) {
	r := &q.resp
	a := readAnswer(h, psn, q.mtu)
	a.repeated = true
	switch {
	case q.attr.AccessFlags&verbs.AccessRemoteRead == 0, !r.repeats(&a, q.mtu), r.pending() > 2*int(q.attr.MaxDestRdAtomic):
	case q.xrc != nil && !q.addressedAgain(h):
	default:
		q.queueAnswer(a)
		if r.reading != nil && q.isLong(r.reading) && psn == r.out[r.outHead].psn {
			q.sendAck(wire.RNRNak(longestRNR), psn)
		}
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
		v := q.sendAnswer(a)
		if v == absent {
			return // until its memory is there
		}
		if v == noAccess {
			if a.repeated {
				if r.outHead++; r.repeats(a, q.mtu) { // otherwise the peer has invalidated the key meanwhile
					q.sendAck(wire.Nak(wire.NakAccess), a.psn)
				}
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

// sendAnswer sends the next packet of an answer, and returns done. It returns noAccess when its data may no longer be
// read, and absent when the data is not in memory.
func (q *queuePair) sendAnswer(a *answer) verdict {
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
				return noAccess
			}
			if t.mr.slow && !q.readableNow(&r.reading, t.mr.spanAt(t.at, n)) {
				k.Release()
				return absent
			}
			if n > copyLimit {
				k.Holder = t.guard
				t.guard.lent = true
			}
			if !t.mr.add(k, t.bytes(n), n > copyLimit) {
				k.Release()
				return noAccess
			}
		}
		a.va += uint64(n)
		a.left -= n
	}
	if r.ackDue && r.ackPSN <= a.psn {
		q.forgetAck() // the answer acknowledges it too
	}
	a.psn++
	q.transmit(k, h)
	return done
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
