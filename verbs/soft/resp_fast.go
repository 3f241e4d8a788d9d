package soft

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The receiving half of the fast path, see req_fast.go.

// receiveFast is the fast path of receive for a packet with header o, a SEND or WRITE of one
// packet, if it is in sequence between messages and valid. It returns false to leave the packet,
// untouched, to the general path.
//
// Of a queue pair it examines only fastMax, before anything else: qualify has derived it.
func (d *device) receiveFast(k *fabric.Packet, op wire.Opcode, o *wire.Only) bool {
	q := d.find(o.DestQP)
	if q == nil {
		return false
	}
	n := uint32(k.PayloadLen)
	if n-1 >= q.fastMax || !q.route.Carries(k) { // the first also excludes n == 0
		return false
	}
	r := &q.resp
	if o.PSN != narrow(r.expected) || !r.between() {
		return false
	}
	if op == wire.RCSendOnly {
		return q.sendFast(k, o)
	}
	// A WRITE; see onWrite.
	if n != o.Length || q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 ||
		!q.putFast(k, d.keys.region(o.RKey), q.pd, o.VA, verbs.AccessRemoteWrite) {
		return false
	}
	q.executedFast(o)
	return true
}

// between reports whether the responder expects a new message, with no refusal or wait pending.
func (r *responder) between() bool {
	return r.established && !r.waiting && !r.refused && r.kind == noMessage && r.disk == nil
}

// sendFast executes a SEND into a receive, of the queue pair's own queue or a shared one, whose first element
// holds it all; see onSend.
func (q *queuePair) sendFast(k *fabric.Packet, o *wire.Only) bool {
	rq, pd := q.rq.Load(), q.pd
	if q.srq != nil {
		rq, pd = q.srq.rq.Load(), q.srq.pd
	}
	place, ok := rq.front()
	if !ok {
		return false
	}
	e := rq.at(place)
	if e.nsge == 0 {
		return false
	}
	s := &rq.sge[(place&rq.mask)*uint64(rq.maxSGE)]
	n := uint32(k.PayloadLen)
	if n > s.Length || !q.putFast(k, q.dev.keys.region(s.LKey), pd, s.Addr, verbs.AccessLocalWrite) {
		return false
	}
	id := e.wrID // read now: see pushRecv
	rq.next++
	if q.srq != nil {
		q.srq.taken(rq)
	}
	q.executedFast(o)
	q.resp.ackMay = !q.resp.ackMust
	wc := q.recvCQ.push(&rq.workQueue, place, o.Solicited)
	wc.WRID, wc.Opcode, wc.ByteLen = id, verbs.WCRecv, n
	wc.QPNum, wc.SrcQP = q.number, q.attr.DestQPN
	return true
}

// putFast copies the payload to addr in m, if m exists, is in the domain pd, permits
// need and contains the range. For a payload whose owner has taken it back (enterGuard) it
// returns false, and the general path treats it as lost.
func (q *queuePair) putFast(k *fabric.Packet, m *memoryRegion, pd *protectionDomain, addr uint64, need verbs.AccessFlags) bool {
	if m == nil || m.pd != pd || m.access&need != need {
		return false
	}
	to, ok := m.view(addr, uint32(k.PayloadLen))
	if !ok || !q.dev.enterGuard(k) {
		return false
	}
	if m.foreign || k.Foreign {
		if m.slow {
			return false
		}
		for _, from := range k.Payload {
			if m.put(to, from, k.Foreign) != done {
				return false // the general path meets the fault again
			}
			to = to[len(from):]
		}
		return true
	}
	if len(to) == wordLen && len(k.Payload) == 1 { // one word needs no call
		binary.NativeEndian.PutUint64(to, binary.NativeEndian.Uint64(k.Payload[0]))
		return true
	}
	for _, from := range k.Payload {
		to = to[copy(to, from):]
	}
	return true
}

// executedFast is the fast path of executed, for a message of one packet.
func (q *queuePair) executedFast(o *wire.Only) {
	r := &q.resp
	psn := r.expected
	r.expected++
	r.msn++
	if o.AckReq {
		q.acknowledge(psn)
	}
}
