package soft

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// The fast path of the most frequent requests: a WRITE or SEND of one packet and one element,
// inline or not, on an RC queue pair, without errors. Each function here does exactly what the
// general path does and returns success, or detects an unusual case before any effect and leaves
// the request to the general path. It makes no decision that the general path does not make: the
// same packets are sent, and every packet is checked completely.

// fastFlags are the send flags of fast-path requests, besides SendInline.
const fastFlags = verbs.SendSignaled | verbs.SendSolicited

// fillFast is the fast path of fillSend. It returns false to leave the request to fillSend.
func (q *queuePair) fillFast(sq *sendQueue, pos uint64, wr *verbs.SendWR) bool {
	if wr.NumSGE != 1 || sq.maxSGE == 0 || wr.Flags&^(fastFlags|verbs.SendInline) != 0 || q.kind != verbs.QPTRC {
		return false
	}
	write := wr.Opcode == verbs.WRRDMAWrite
	if !write && wr.Opcode != verbs.WRSend {
		return false
	}
	s, ok := mem.At[verbs.SGE](q.wrArena, wr.SGList) // the request's arena
	if !ok {
		return false
	}
	if wr.Flags&verbs.SendInline == 0 {
		sq.sges(pos, 1)[0] = *s
	} else if s.Length > sq.maxInline || !q.copyInline(sq.payload(pos, s.Length), s) {
		return false
	}
	w := sq.at(pos)
	// Field by field: a composite literal would be built elsewhere and copied. Fields not set
	// here are unused in a WRITE or SEND, or start sets them.
	w.wrID, w.op, w.flags, w.nsge, w.length = wr.WRID, wr.Opcode, wr.Flags, 1, s.Length
	w.started, w.failed, w.fast = false, false, true
	if write {
		w.remote, w.rkey = wr.RemoteAddr, wr.RDMARKey()
	}
	return true
}

// emitFast sends requests from cur on, which is fresh, up to most, while each is one packet and
// its element is valid. It returns their number and leaves the next to start and emitPacket. The
// queue pair is in RTS.
func (q *queuePair) emitFast(sq *sendQueue, head uint64, most int) (n int) {
	r, d := &q.req, q.dev
	out := r.next - r.acked
	if out >= r.window.psns {
		return 0
	}
	most = int(min(uint64(most), head-r.cur, r.window.psns-out))
	h := &d.scratch.only
	h.DestQP, h.AckReq = q.attr.DestQPN, true
	var m *memoryRegion // the region of key, which was looked up last
	var key uint32
	pos, psn := r.cur, r.next
	for ; n < most; n++ {
		w := sq.at(pos)
		if !w.fast || w.failed || w.length > q.fastMax {
			break
		}
		var b []byte
		foreign := false
		if w.flags&verbs.SendInline != 0 {
			b = sq.payload(pos, w.length)
		} else {
			s := &sq.sges(pos, 1)[0]
			if m == nil || s.LKey != key {
				if key, m = s.LKey, d.keys.region(s.LKey); m == nil || m.pd != q.pd {
					break
				}
			}
			var ok bool
			if b, ok = m.view(s.Addr, s.Length); !ok {
				break
			}
			if len(b) > copyLimit {
				q.guard.note(m)
			}
			foreign = m.foreign
		}
		k := d.p.Get()
		if len(b) > copyLimit {
			k.Holder = q.guard
		}
		switch {
		case foreign:
			if m.slow || !addForeign(k, b, len(b) > copyLimit) {
				k.Release()
				k = nil
			}
		case len(b) <= copyLimit:
			k.AddCopy(b)
		default:
			k.AddRef(b)
		}
		if k == nil {
			break // start and emitPacket meet the fault again, or wait for a disk
		}
		h.PSN, h.Length = narrow(psn), w.length
		h.Solicited = w.flags&verbs.SendSolicited != 0
		if w.op == verbs.WRRDMAWrite {
			h.VA, h.RKey = w.remote, w.rkey
			k.HdrLen = h.EncodeWrite(&k.Hdr)
		} else {
			k.HdrLen = h.EncodeSend(&k.Hdr)
		}
		if q.trafficClass != 0 {
			k.Net.TrafficClass = q.trafficClass
		}
		d.p.SendTo(q.route, k)
		w.first, w.npkts, w.started = psn, 1, true
		pos++
		psn++
	}
	if n > 0 {
		r.cur, r.fresh, r.next = pos, pos, psn
		r.sent = max(r.sent, psn)
		r.sinceAckReq = 0
	}
	return n
}

// qualify sets fastMax, the longest message of the fast paths: one packet, within the message limit. It is 0 unless
// the queue pair has what the general path examines and the fast paths do not: type RC (its half, transport and
// opcodes; no XRC domain), RTS (a state that sends and receives), and a route. Everything else depends on the packet
// or the request, and the fast paths check it. Call it after a change of the state or the route; the type never
// changes, and the MTU only before RTS.
func (q *queuePair) qualify() {
	q.fastMax = 0
	if q.kind == verbs.QPTRC && q.current() == verbs.QPSRTS && q.route != nil {
		q.fastMax = min(q.mtu, q.dev.cfg.Limits.MaxMsgSize)
	}
}
