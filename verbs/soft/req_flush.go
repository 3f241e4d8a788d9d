package soft

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// flushHeader fills in the header of a FLUSH packet.
func (q *queuePair) flushHeader(w *sendWQE, h *wire.Header) {
	h.Opcode, h.AckReq = q.wire(wire.OpFlush), true
	h.VA, h.RKey, h.Length = w.remote, w.rkey, uint32(w.arg1)
	p, s := flushLevels(w.arg2)
	h.FlushPlacement, h.FlushSelectivity = uint8(p), uint8(s)
}

// atomicWriteHeader fills in an ATOMIC_WRITE packet: its 8 bytes are payload, in memory order.
func (q *queuePair) atomicWriteHeader(w *sendWQE, h *wire.Header, k *fabric.Packet) {
	h.Opcode, h.AckReq = q.wire(wire.OpAtomicWrite), true
	h.VA, h.RKey, h.Length = w.remote, w.rkey, wordLen
	x := &q.dev.scratch
	binary.NativeEndian.PutUint64(x.word[:], w.arg1)
	k.AddCopy(x.word[:])
}
