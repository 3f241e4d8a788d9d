package soft

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// errTooLong is the error of a message longer than its receive.
var errTooLong = errors.New("message longer than the receive")

// Errors of memory that stopped being there.
var (
	errGone = errors.New("the memory is not there any more")
	errLost = errors.New("the payload is not there any more")
)

// scatter copies payload into elements, starting at offset off. foreign is that of the packet.
func (d *device) scatter(pd *protectionDomain, sges []verbs.SGE, off uint64, payload [][]byte, foreign bool) error {
	i := 0
	for _, from := range payload {
		for len(from) > 0 {
			for i < len(sges) && off >= uint64(sges[i].Length) {
				off -= uint64(sges[i].Length)
				i++
			}
			if i == len(sges) {
				return errTooLong
			}
			s := &sges[i]
			n := uint32(min(uint64(s.Length)-off, uint64(len(from))))
			m, err := d.resolve(pd, s.LKey, s.Addr+off, n, verbs.AccessLocalWrite)
			if err != nil {
				return err
			}
			to, _ := m.view(s.Addr+off, n)
			switch m.put(to, from[:n], foreign) {
			case lost:
				return errLost
			case noAccess:
				return errGone
			}
			from = from[n:]
			off += uint64(n)
		}
	}
	return nil
}

// verdict is the result of a packet of a SEND or WRITE. The service decides the consequence: a
// reliable one answers, an unreliable one drops the message.
type verdict uint8

const (
	done       verdict = iota
	lost               // its owner took the payload back, or it is not there: treat the packet as lost
	noReceive          // it needs a receive and none is posted
	invalid            // it does not fit its message or the queue pair
	noAccess           // key, range, permission, or memory that is not there
	tooLong            // the receive is too short
	badReceive         // the receive's own elements are invalid
	absent             // its memory is not there yet: the packet waits
)

// onSend executes a packet of a SEND.
func (q *queuePair) onSend(k *fabric.Packet, h *wire.Header, psn uint64, starts, ends bool) {
	v := q.putSend(k, starts)
	if !q.concluded(v, psn) {
		return
	}
	if h.Opcode.Ext()&wire.ExtIETH != 0 {
		if !q.invalidateForPeer(h.InvKey) {
			q.badInvalidate(h, psn)
			return
		}
		q.resp.forget(h.InvKey)
	}
	q.executed(h, psn, ends)
	if ends {
		q.completeRecv(h, verbs.WCRecv, uint32(q.resp.recvOff))
	}
}

// onWrite executes a packet of a WRITE.
func (q *queuePair) onWrite(k *fabric.Packet, h *wire.Header, psn uint64, starts, ends bool) {
	v := q.putWrite(k, h, starts, ends)
	if !q.concluded(v, psn) {
		return
	}
	q.executed(h, psn, ends)
	if h.Opcode.Ext()&wire.ExtImm != 0 {
		q.completeRecv(h, verbs.WCRecvRDMAWithImm, q.resp.total)
	}
}

// concluded answers a request that could not be executed, and reports whether it was executed.
func (q *queuePair) concluded(v verdict, psn uint64) bool {
	switch v {
	case noReceive:
		q.notReady(psn)
	case invalid:
		q.refuse(psn, wire.NakInvalid)
	case noAccess:
		q.refuse(psn, wire.NakAccess)
	case tooLong:
		q.refuseRecv(psn, wire.NakInvalid, verbs.WCLocLenErr)
	case badReceive:
		// The receive is invalid, not the request (rxe: malformed WQE).
		q.refuseRecv(psn, wire.NakOperation, verbs.WCLocProtErr)
	}
	return v == done
}

// putSend copies a packet of a SEND into the receive of its message, and holds the receive.
func (q *queuePair) putSend(k *fabric.Packet, starts bool) verdict {
	r := &q.resp
	v, ok := q.nextRecv()
	switch {
	case starts && !ok:
		return noReceive
	case !starts && r.kind != sendMessage:
		return invalid
	}
	off := r.recvOff
	if starts {
		off = 0
	}
	if k.PayloadLen > 0 {
		if off+uint64(k.PayloadLen) > v.size() {
			return tooLong
		}
		if !q.scatterable(&q.resp.disk, v.pd, v.sges(), off, k.PayloadLen) {
			return absent
		}
		if !q.dev.enterGuard(k) {
			return lost
		}
		if err := q.dev.scatter(v.pd, v.sges(), off, k.Payload, k.Foreign); err != nil {
			if errors.Is(err, errLost) {
				return lost
			}
			return badReceive
		}
		off += uint64(k.PayloadLen)
	}
	q.hold(v)
	r.kind, r.recvOff = sendMessage, off
	return done
}

// putWrite copies a packet of a WRITE to its destination. With immediate it then holds a receive.
func (q *queuePair) putWrite(k *fabric.Packet, h *wire.Header, starts, ends bool) verdict {
	r := &q.resp
	n := uint32(k.PayloadLen)
	va, rkey, resid, total := r.va, r.rkey, r.resid, r.total
	if starts {
		va, rkey, resid, total = h.VA, h.RKey, h.Length, h.Length
		if q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
			// The queue pair permits no WRITE at all: an invalid request (rxe: check_op_valid),
			// unlike a region that does not permit it.
			return invalid
		}
		if total > q.dev.cfg.Limits.MaxMsgSize {
			return invalid
		}
		if total > 0 { // an empty WRITE needs no key
			if _, err := q.remote(rkey, va, total, verbs.AccessRemoteWrite); err != nil {
				return noAccess
			}
		}
	} else if r.kind != writeMessage {
		return invalid
	}
	if n > resid || (ends && n != resid) || (!ends && n == resid) {
		return invalid
	}
	imm := h.Opcode.Ext()&wire.ExtImm != 0
	var v receive
	if imm {
		var ok bool
		if v, ok = q.nextRecv(); !ok {
			return noReceive
		}
	}
	if n > 0 {
		t, err := q.remote(rkey, va, n, verbs.AccessRemoteWrite)
		if err != nil { // closed or invalidated since the first packet
			return noAccess
		}
		if !q.writableNow(&t, n, resid) {
			return absent
		}
		if !q.dev.enterGuard(k) {
			return lost
		}
		to := t.bytes(n)
		for _, from := range k.Payload {
			if v := t.mr.put(to, from, k.Foreign); v != done {
				return v
			}
			to = to[len(from):]
		}
	}
	if imm {
		q.hold(v)
	}
	r.kind = writeMessage
	r.va, r.rkey, r.resid, r.total = va+uint64(n), rkey, resid-n, total
	return done
}

// onAtomic executes a compare-and-swap or fetch-and-add, once.
func (q *queuePair) onAtomic(h *wire.Header, psn uint64) {
	r := &q.resp
	limit := int(q.attr.MaxDestRdAtomic)
	switch {
	case q.attr.AccessFlags&verbs.AccessRemoteAtomic == 0, limit == 0, r.fresh() >= limit, h.VA%8 != 0:
		q.refuse(psn, wire.NakInvalid)
		return
	}
	t, err := q.remote(h.RKey, h.VA, wordLen, verbs.AccessRemoteAtomic)
	if err != nil {
		q.refuse(psn, wire.NakAccess)
		return
	}
	word, ok := t.mr.word(t.at)
	if !ok { // the request address is aligned, the memory behind it is not
		q.refuse(psn, wire.NakInvalid)
		return
	}
	if !q.writableNow(&t, wordLen, 0) {
		return
	}
	var orig uint64
	if !t.mr.update(func() {
		if h.Opcode.Op() == wire.OpFetchAdd {
			orig = atomic.AddUint64(word, h.SwapAdd) - h.SwapAdd
			return
		}
		for {
			if orig = atomic.LoadUint64(word); orig != h.Compare || atomic.CompareAndSwapUint64(word, orig, h.SwapAdd) {
				return
			}
		}
	}) {
		q.refuse(psn, wire.NakAccess)
		return
	}
	r.remember(result{psn: psn, orig: orig}, limit)
	h.AckReq = false // its answer acknowledges it
	q.executed(h, psn, true)
	q.queueAnswer(answer{psn: psn, end: psn + 1, first: psn, orig: orig})
}
