package soft

import (
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The general service interface: queue pair 1, which receives management datagrams. It belongs to
// the device itself.
//
// Implements: IBTA volume 1, 13.5 (MADs); queue pair 1 of every port.
const (
	gsiQP  = 1
	madLen = 256 // the length in bytes of every management datagram
)

// sendMAD sends a copy of a management datagram. Call it during Progress or in an exclusive
// section. A datagram to an unknown destination is lost. The address of a stranger is not proven.
func (d *device) sendMAD(dst wire.Path, mad []byte, stranger bool) {
	k := d.p.Get()
	k.Stranger = stranger
	h := &d.scratch.tx
	*h = wire.Header{
		Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: gsiQP, MigReq: true,
		PadCount: wire.PadLen(len(mad)), QKey: wire.GSIQKey, SrcQP: gsiQP,
	}
	k.SetHeader(h)
	k.AddCopy(mad)
	d.p.Send(dst, k)
}

// receiveMAD handles a datagram to queue pair 1.
func (d *device) receiveMAD(k *fabric.Packet, h *wire.Header) {
	if h.QKey != wire.GSIQKey || h.Opcode != wire.UDSendOnly || d.onMAD == nil {
		return
	}
	if k.PayloadLen != madLen || len(k.Payload) != 1 || !d.enterGuard(k) {
		d.p.CountMalformed()
		return
	}
	src := wire.To(k.Src)
	if k.Far != nil {
		src = *k.Far
	}
	d.onMAD(d.now, src, k.Payload[0])
}
