package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The general service interface: queue pair 1, where management datagrams go.
// It belongs to the device itself.
//
// Implements: IBTA volume 1, 13.5 (MADs); queue pair 1 of every port.
const (
	gsiQP  = 1
	madLen = 256 // every management datagram has this length
)

// sendMAD sends a management datagram, which is copied. In the engine's turn
// or an exclusive section only. An unknown destination loses it.
func (d *device) sendMAD(dst verbs.GID, mad []byte) {
	k := d.p.Get()
	h := &d.scratch.tx
	*h = wire.Header{
		Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: gsiQP, MigReq: true,
		PadCount: wire.PadLen(len(mad)), QKey: wire.GSIQKey, SrcQP: gsiQP,
	}
	k.SetHeader(h)
	k.Dst = dst
	k.AddCopy(mad)
	d.p.Send(k)
}

// receiveMAD takes a datagram to queue pair 1.
func (d *device) receiveMAD(k *fabric.Packet, h *wire.Header) {
	if h.QKey != wire.GSIQKey || h.Opcode != wire.UDSendOnly || d.onMAD == nil {
		return
	}
	if k.PayloadLen != madLen || len(k.Payload) != 1 || !d.enterGuard(k) {
		d.p.CountMalformed()
		return
	}
	d.onMAD(d.now, k.Src, k.Payload[0])
}
