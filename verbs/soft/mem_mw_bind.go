package soft

import (
	"math"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// accessWindow is the access that a binding may request (rxe: RXE_ACCESS_SUPPORTED_MW); its local
// flags have no effect.
const accessWindow = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent | verbs.AccessRelaxedOrdering

// fillBind copies the parameters of a BIND_MW. Handles that cannot exist become 0, which names no
// object, so that they fail on execution.
func (w *sendWQE) fillBind(wr *verbs.SendWR) {
	handle := func(h uint64) uint64 {
		if h > math.MaxUint32 {
			return 0
		}
		return h
	}
	w.remote, w.arg1 = wr.BindAddr, wr.BindLength
	w.arg2 = handle(wr.MW)<<32 | handle(wr.BindMR)
	w.rkey, w.imm = wr.MWRKey, uint32(wr.BindAccess)
}

// bind executes a BIND_MW. If a rule is broken it returns false and changes nothing.
//
// Implements: IBTA volume 1, 10.6.7 (C10-72 to C10-75); the rules are those of rdma_rxe
// (rxe_mw.c, rxe_check_bind_mw), and these: for both types, window and region must be in the
// queue pair's protection domain (C10-72), the key may differ in its low 8 bits only, a
// zero-based window lies inside its region too, and a window permits persistent FLUSH only where
// the region supports it.
func (q *queuePair) bind(w *sendWQE) bool {
	d := q.dev
	addr, length, access := w.remote, w.arg1, verbs.AccessFlags(w.imm)
	slot := d.keys.find(uint32(w.arg2 >> 32))
	if slot == nil || slot.mw == nil {
		return false
	}
	mw := slot.mw
	if mw.pd != q.pd || keyIndex(w.rkey) != mw.index || access&^accessWindow != 0 {
		return false
	}
	switch mw.kind {
	case verbs.MWType1:
		if access&verbs.AccessZeroBased != 0 { // o10-36.2.2
			return false
		}
	case verbs.MWType2:
		// o10-37.2.30: free; o10-37.2.40: a binding of length 0 does not unbind
		if mw.mr != nil || length == 0 {
			return false
		}
	}
	var mr *memoryRegion
	if length != 0 {
		if mr = d.keys.get(uint32(w.arg2)); mr == nil || !mr.bindable(q.pd, addr, length, access) {
			return false
		}
	}
	d.unbind(mw)
	slot.key = w.rkey
	mw.key.Store(w.rkey)
	if mr == nil {
		return true
	}
	mw.mr, mw.addr, mw.length, mw.access = mr, addr, length, access
	mr.windows++
	if mw.kind == verbs.MWType2 {
		mw.qp, mw.place = q, len(q.bound)
		q.bound = append(q.bound, mw)
	}
	return true
}

// bindable reports whether a window may be bound to length bytes at addr of m.
func (m *memoryRegion) bindable(pd *protectionDomain, addr, length uint64, access verbs.AccessFlags) bool {
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	off, size := addr-m.iova, uint64(len(m.data))
	switch {
	case m.pd != pd: // C10-72
	case m.access&verbs.AccessMWBind == 0: // C10-73
	case m.access&verbs.AccessZeroBased != 0: // rxe_check_bind_mw
	case access&writes != 0 && m.access&verbs.AccessLocalWrite == 0: // C10-74
	case access&verbs.AccessFlushPersistent != 0 && !m.arena.Persistent():
	case off > size || length > size-off: // C10-75
	default:
		return true
	}
	return false
}

// unbind ends the binding of a window, if there is one. After it returns no engine reads through
// the window.
func (d *device) unbind(w *memoryWindow) {
	if w.mr == nil {
		return
	}
	if w.guard.lent {
		d.retire(w.guard)
		w.guard = new(guard)
	}
	w.mr.windows--
	if q := w.qp; q != nil {
		last := len(q.bound) - 1
		q.bound[w.place] = q.bound[last]
		q.bound[w.place].place = w.place
		q.bound[last] = nil
		q.bound = q.bound[:last]
	}
	w.mr, w.qp, w.addr, w.length, w.access = nil, nil, 0, 0, 0
}

// unbindAll unbinds the windows bound through a queue pair that is destroyed. They would be
// unusable and keep their regions from being closed.
func (q *queuePair) unbindAll() {
	for len(q.bound) > 0 {
		q.dev.unbind(q.bound[len(q.bound)-1])
	}
}

// invalidate invalidates a key for a LOCAL_INV. It returns false if that is not permitted.
//
// Only a type 2 window that is bound through this queue pair can lose its key this way
// (o10-37.2.26; type 2B). A region's key cannot: user space cannot create a region that a work
// request registers (rxe_mr.c, rxe_invalidate_mr, accepts IB_MR_TYPE_MEM_REG only). If the window is
// free, its key is invalid already, and the LOCAL_INV succeeds: the peer's SEND_WITH_INV may have come
// first, and a program cannot exclude that.
func (q *queuePair) invalidate(key uint32) bool {
	s := q.dev.keys.find(keyIndex(key))
	if s == nil || s.key != key || s.mw == nil || s.mw.kind != verbs.MWType2 || s.mw.pd != q.pd {
		return false
	}
	if s.mw.mr == nil {
		return true
	}
	if s.mw.qp != q {
		return false
	}
	q.takeBack(s.mw)
	return true
}

// invalidateForPeer is invalidate for a SEND_WITH_INV of the peer. The window must be bound, or its
// program must have taken this key back: a peer that gives a window back cannot know that.
func (q *queuePair) invalidateForPeer(key uint32) bool {
	if s := q.dev.keys.find(keyIndex(key)); s != nil && s.key == key && s.mw != nil && s.mw.mr != nil && s.mw.qp == q {
		q.dev.unbind(s.mw)
		return true
	}
	return q.resp.takenBack != nil && slices.Contains(q.resp.takenBack.keys, key)
}

// takeBack unbinds a type 2 window of this queue pair at the wish of its program.
func (q *queuePair) takeBack(w *memoryWindow) {
	if q.resp.takenBack == nil {
		q.resp.takenBack = &keyRing{}
	}
	q.resp.takenBack.add(w.key.Load())
	q.dev.unbind(w)
}

// maxTakenBack is how many keys a queue pair remembers. A program can take back this many windows at
// once, and the memory of a queue pair is at most 4 KiB for it.
const maxTakenBack = 1024

// keyRing holds the last maxTakenBack keys that were added.
type keyRing struct {
	keys []uint32
	next int // the place of the next key in a full ring: the oldest key
}

func (r *keyRing) add(key uint32) {
	if len(r.keys) < maxTakenBack {
		r.keys = append(r.keys, key)
		return
	}
	r.keys[r.next] = key
	r.next = (r.next + 1) % maxTakenBack
}

// badInvalidate concludes a SEND_WITH_INV whose key may not be invalidated. The message has been
// delivered, so it is acknowledged. Its receive completes with an error, and the queue pair moves
// to ERR after the acknowledgement (class J error; rxe_resp.c, RESPST_ERR_INVALIDATE_RKEY).
func (q *queuePair) badInvalidate(h *wire.Header, psn uint64) {
	h.AckReq = false // the acknowledgement is the last packet sent
	q.executed(h, psn, true)
	q.completeRecvError(verbs.WCRemInvReqErr, vendorRecv)
	q.resp.refused, q.resp.ackDue = true, false
	q.sendNak(wire.Ack(wire.CreditInvalid), psn)
}
