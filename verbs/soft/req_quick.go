package soft

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// The quick way of what is most frequent: a WRITE or SEND of one packet and one
// element, inline or not, on an RC queue pair, with everything in order. Each of these functions
// does exactly what the general way does and says so, or finds something unusual
// before it has done anything and leaves the request to the general way. Nothing is
// decided here that is not decided there: the same packets go over the link, and
// every packet is checked as a whole.

// quickFlags are the send flags of quick requests, besides SendInline.
const quickFlags = verbs.SendSignaled | verbs.SendSolicited

// fillQuick is fillSend; false leaves it to that.
func (q *queuePair) fillQuick(sq *sendQueue, pos uint64, wr *verbs.SendWR) bool {
	if wr.NumSGE != 1 || sq.maxSGE == 0 || wr.Flags&^(quickFlags|verbs.SendInline) != 0 || q.kind != verbs.QPTRC {
		return false
	}
	write := wr.Opcode == verbs.WRRDMAWrite
	if !write && wr.Opcode != verbs.WRSend {
		return false
	}
	s, ok := mem.At[verbs.SGE](q.wrArena, wr.SGList) // the arena of the request, which is there
	if !ok {
		return false
	}
	if wr.Flags&verbs.SendInline == 0 {
		sq.sge[(pos&sq.mask)*uint64(sq.maxSGE)] = *s
	} else if s.Length > sq.maxInline || !q.copyInline(sq.payload(pos, s.Length), s) {
		return false
	}
	w := sq.at(pos)
	// Field by field: a composite would be built elsewhere and copied. What is not
	// set here nobody looks at in a WRITE or SEND, or start sets it.
	w.wrID, w.op, w.flags, w.nsge, w.length = wr.WRID, wr.Opcode, wr.Flags, 1, s.Length
	w.started, w.failed, w.quick = false, false, true
	if write {
		w.remote, w.rkey = wr.RemoteAddr, wr.RDMARKey()
	}
	return true
}

// emitQuick sends requests from cur on, which is fresh, as long as each is one
// packet and its element is in order, at most so many, and tells how many; the next
// is left to start and emitPacket. The queue pair is in RTS.
func (q *queuePair) emitQuick(sq *sendQueue, head uint64, most int) (n int) {
	r, d := &q.req, q.dev
	out := r.next - r.acked
	if out >= windowPSNs {
		return 0
	}
	most = int(min(uint64(most), head-r.cur, windowPSNs-out))
	h := &d.scratch.only
	h.DestQP, h.AckReq = q.attr.DestQPN, true
	var m *memoryRegion // of key, which was looked up last
	var key uint32
	pos, psn := r.cur, r.next
	for ; n < most; n++ {
		w := sq.at(pos)
		if !w.quick || w.failed || w.length > q.quickMax {
			break
		}
		var b []byte
		if w.flags&verbs.SendInline != 0 {
			b = sq.payload(pos, w.length)
		} else {
			s := &sq.sge[(pos&sq.mask)*uint64(sq.maxSGE)]
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
		}
		k := d.p.Get()
		if len(b) <= copyLimit {
			k.AddCopy(b)
		} else {
			k.Holder = q.guard
			k.AddRef(b)
		}
		h.PSN, h.Length = narrow(psn), w.length
		h.Solicited = w.flags&verbs.SendSolicited != 0
		if w.op == verbs.WRRDMAWrite {
			h.VA, h.RKey = w.remote, w.rkey
			k.HdrLen = h.EncodeWrite(&k.Hdr)
		} else {
			k.HdrLen = h.EncodeSend(&k.Hdr)
		}
		d.p.SendTo(q.route, k)
		w.first, w.npkts, w.started = psn, 1, true
		pos++
		psn++
	}
	if n > 0 {
		r.cur, r.fresh, r.next = pos, pos, psn
		r.sent = max(r.sent, psn)
		r.unasked = 0
	}
	return n
}

// quickSize is the longest message that goes the quick way: one packet that is not
// too long a message; 0 on a queue pair that is not RC.
func (q *queuePair) quickSize() uint32 {
	if q.kind != verbs.QPTRC {
		return 0
	}
	return min(q.mtu, q.dev.cfg.Limits.MaxMsgSize)
}
