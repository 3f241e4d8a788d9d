package soft

import (
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// supported are the opcodes that an RC queue pair executes.
var supported = verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
	verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRSendWithInv,
	verbs.WRLocalInv, verbs.WRBindMW, verbs.WRFlush, verbs.WRAtomicWrite)

// knownFlags are the valid send flags; IP_CSUM is for raw packets.
const knownFlags = verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline

// postSend copies the requests of a group into the queue. It reports whether the engine has to
// run with the queue pair on its list.
//
//	EINVAL  no such queue pair here, RESET, INIT or RTR; opcode, flags, number
//	        of elements, inline length, atomic length or alignment; list too short;
//	        FLUSH or ATOMIC_WRITE in a group that is not extended
//	ENOMEM  the queue is full
//	EFAULT  a request, its elements or its inline data are not in off-heap memory
//
// Implements: ibv_post_send; the errnos are those of rdma-core's providers/rxe/rxe.c.
func (c *deviceContext) postSend(g *verbs.SendGroup) (ring bool) {
	g.Accepted, g.Errno = 0, 0
	q, ok := c.ownQP(g.QP)
	if !ok {
		g.Errno = syscall.EINVAL
		return false
	}
	switch verbs.QPState(q.state.Load()) {
	case verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR:
		g.Errno = syscall.EINVAL
		return false
	}
	sq := q.sq.Load()
	head := sq.head.Load()
	room := sq.room(head)
	addr := g.Head
	n := 0
	for n < g.Count {
		var wr *verbs.SendWR
		if wr, ok = q.sendWR(addr); !ok {
			g.Errno = syscall.EFAULT
			break
		}
		if uint64(n) == room {
			g.Errno = syscall.ENOMEM
			break
		}
		if pos := head + uint64(n); pos%partSlots == 0 {
			sq.prepare(pos)
		}
		if !q.fillFast(sq, head+uint64(n), wr) {
			if wr.Opcode.ExtendedOnly() && !g.Extended {
				g.Errno = syscall.EINVAL
				break
			}
			if g.Errno = q.fillSend(sq, head+uint64(n), wr); g.Errno != 0 {
				break
			}
		}
		n++
		if addr = wr.Next; addr == 0 && n < g.Count {
			g.Errno = syscall.EINVAL
			break
		}
	}
	if g.Extended && g.Errno != 0 {
		n = 0 // ibv_wr_complete: the whole list is aborted
	}
	g.Accepted = n
	if n == 0 {
		return false
	}
	sq.head.Store(head + uint64(n))
	return true
}

// sendWR returns the request at addr. It caches the arena, because the next request is usually in
// the same.
func (q *queuePair) sendWR(addr uint64) (*verbs.SendWR, bool) {
	if a := q.wrArena; a != nil {
		if wr, ok := mem.At[verbs.SendWR](a, addr); ok {
			return wr, true
		}
	}
	a, ok := mem.Find(addr, verbs.SizeofSendWR)
	if !ok {
		return nil, false
	}
	q.wrArena = a
	return mem.At[verbs.SendWR](a, addr)
}

// list returns the elements at addr.
func (q *queuePair) list(addr uint64, n uint32) ([]verbs.SGE, bool) {
	if n == 0 {
		return nil, true
	}
	if a := q.wrArena; a != nil {
		if s, ok := mem.Array[verbs.SGE](a, addr, int(n)); ok {
			return s, true
		}
	}
	a, ok := mem.Find(addr, int(n)*verbs.SizeofSGE)
	if !ok {
		return nil, false
	}
	return mem.Array[verbs.SGE](a, addr, int(n))
}

// fillSend checks a request and copies it to the slot of position pos, which is free and not yet
// published.
func (q *queuePair) fillSend(sq *sendQueue, pos uint64, wr *verbs.SendWR) syscall.Errno {
	if !q.service.executes.Has(wr.Opcode) || wr.Flags&^knownFlags != 0 || wr.NumSGE > sq.maxSGE {
		return syscall.EINVAL
	}
	sges, ok := q.list(wr.SGList, wr.NumSGE)
	if !ok {
		return syscall.EFAULT
	}
	var total uint64
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	w := sq.at(pos)
	*w = sendWQE{
		wrID: wr.WRID, op: wr.Opcode, flags: wr.Flags, nsge: wr.NumSGE,
		length: uint32(min(total, math.MaxUint32)), // larger totals saturate and later fail as too long
	}
	if q.kind == verbs.QPTXRCSend {
		if wr.RemoteSRQN > maxSRQN {
			return syscall.EINVAL
		}
		w.srqn = wr.RemoteSRQN
	}
	switch {
	case wr.Opcode.HasImm():
		w.imm = wr.Imm()
	case wr.Opcode.IsAtomic():
		if total != 8 || wr.RemoteAddr%8 != 0 {
			return syscall.EINVAL
		}
		w.remote, w.arg1, w.arg2, w.rkey = wr.RemoteAddr, wr.W1, wr.W2, wr.AtomicRKey()
	case wr.Opcode == verbs.WRRDMARead && wr.NumSGE > maxSGERead:
		return syscall.EINVAL
	}
	if q.kind == verbs.QPTUD {
		ah, qpn, qkey := wr.UD()
		w.remote, w.arg1, w.rkey = ah, uint64(qpn), qkey
	}
	switch wr.Opcode {
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead:
		w.remote, w.rkey = wr.RemoteAddr, wr.RDMARKey()
	}
	if errno := w.fillMemory(wr); errno != 0 {
		return errno
	}
	if wr.Flags&verbs.SendInline != 0 {
		return q.fillInline(sq, pos, w, sges, total)
	}
	copy(sq.sges(pos, wr.NumSGE), sges)
	return 0
}

// fillInline copies the payload itself; it ignores keys.
func (q *queuePair) fillInline(sq *sendQueue, pos uint64, w *sendWQE, sges []verbs.SGE, total uint64) syscall.Errno {
	if w.reads() || total > uint64(sq.maxInline) {
		return syscall.EINVAL
	}
	into := sq.payload(pos, uint32(total))
	for i := range sges {
		if !q.copyInline(into, &sges[i]) {
			return syscall.EFAULT
		}
		into = into[sges[i].Length:]
	}
	return 0
}

// bytesAt returns memory of the caller, registered or not.
func (q *queuePair) bytesAt(addr uint64, n uint32) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if a := q.inlineArena; a != nil {
		if b, ok := a.Slice(addr, int(n)); ok {
			return b, true
		}
	}
	a, ok := mem.Find(addr, int(n))
	if !ok {
		return nil, false
	}
	q.inlineArena = a
	return a.Slice(addr, int(n))
}

// ringDoorbell puts the queue pair on the device's doorbell list.
func (q *queuePair) ringDoorbell() {
	if !q.doorbellRung.Swap(true) {
		q.dev.doorbells.Push(q)
	}
}
