package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// service describes a queue pair type to the engine.
type service struct {
	transport wire.Transport // of the packets it sends and accepts
	executes  verbs.OpcodeSet
	reliable  bool // requests are acknowledged and repeated: req.go, resp.go; otherwise ud.go
}

// connected are the opcodes of UC: those that need no answer.
var connected = verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRBindMW)

// services are the supported types of queue pairs.
var services = map[verbs.QPType]*service{
	verbs.QPTRC: {transport: wire.TransportRC, executes: supported, reliable: true},
	verbs.QPTUC: {transport: wire.TransportUC, executes: connected},
	verbs.QPTUD: {transport: wire.TransportUD, executes: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm)},

	verbs.QPTXRCSend: {transport: wire.TransportXRC, executes: supported, reliable: true},
	verbs.QPTXRCRecv: {transport: wire.TransportXRC, reliable: true},
}

// types are the keys of services, in order.
var types = []verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend, verbs.QPTXRCRecv}

// wire returns the packet opcode of an operation in this queue pair's service.
func (q *queuePair) wire(op wire.Op) wire.Opcode { return q.service.transport.With(op) }

// takes reports whether a packet is of the queue pair's own service and partition and, for XRC,
// of its half.
func (q *queuePair) takes(h *wire.Header) bool {
	if h.Opcode.Transport() != q.service.transport || h.PKey != wire.DefaultPKey {
		return false
	}
	return q.service.transport != wire.TransportXRC || h.Opcode.Response() == (q.kind == verbs.QPTXRCSend)
}
