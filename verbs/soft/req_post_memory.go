package soft

import (
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// fillMemory checks and copies the fields specific to requests that bind, invalidate, flush or
// write one word. Except for SEND_WITH_INV they have no elements and no inline data (rxe:
// validate_send_wr).
//
// Permission, range and the alignment of an ATOMIC_WRITE are known to the peer only, and the peer
// checks them, as with rdma_rxe.
func (w *sendWQE) fillMemory(wr *verbs.SendWR) syscall.Errno {
	switch wr.Opcode {
	case verbs.WRSendWithInv:
		w.imm = wr.Invalidate()
		return 0
	case verbs.WRBindMW, verbs.WRLocalInv, verbs.WRFlush, verbs.WRAtomicWrite:
		if wr.NumSGE != 0 || wr.Flags&verbs.SendInline != 0 {
			return syscall.EINVAL
		}
	}
	switch wr.Opcode {
	case verbs.WRBindMW:
		if wr.ImmData != 0 {
			return syscall.EINVAL
		}
		w.fillBind(wr)
	case verbs.WRLocalInv:
		w.rkey = wr.Invalidate()
	case verbs.WRFlush:
		if p, s := flushLevels(wr.W2); wr.W1 > math.MaxUint32 || wr.W2>>16 != 0 || !validFlush(p, s) {
			return syscall.EINVAL
		}
		w.remote, w.rkey, w.arg1, w.arg2 = wr.RemoteAddr, wr.AtomicRKey(), wr.W1, wr.W2
	case verbs.WRAtomicWrite:
		w.remote, w.rkey, w.arg1, w.length = wr.RemoteAddr, wr.AtomicRKey(), wr.W1, wordLen
	}
	return 0
}

// flushLevels returns the levels of a FLUSH, as packed by SendWR.SetFlush.
func flushLevels(w2 uint64) (verbs.FlushPlacement, verbs.FlushSelectivity) {
	return verbs.FlushPlacement(w2), verbs.FlushSelectivity(w2 >> 8)
}

// validFlush reports whether a FLUSH has an effect and uses no reserved values.
func validFlush(p verbs.FlushPlacement, s verbs.FlushSelectivity) bool {
	const known = verbs.FlushGlobal | verbs.FlushPersistent
	return p != 0 && p&^known == 0 && s <= verbs.FlushMR
}
