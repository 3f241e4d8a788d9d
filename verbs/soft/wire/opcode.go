package wire

import "fmt"

// Opcode is the first byte of a packet: the transport (bits 7 to 5) and the
// operation (bits 4 to 0).
//
// Implements: IBTA volume 1, table 38 (opcodes); enum in include/rdma/ib_pack.h.
type Opcode uint8

// Transport is the service a packet belongs to: the high three bits of its
// opcode.
type Transport uint8

// Values of Transport. RD (0x40) is specified but not in use anywhere; its packets are refused.
const (
	TransportRC  Transport = 0x00
	TransportUC  Transport = 0x20
	TransportUD  Transport = 0x60
	TransportXRC Transport = 0xa0

	transportMask = 0xe0
)

// Op is the operation of a packet: the low five bits of its opcode. It has the same meaning in
// every transport that has it.
type Op uint8

// Values of Op. 0x15, 0x18 to 0x1b, 0x1e and 0x1f are reserved.
const (
	OpSendFirst        Op = 0x00
	OpSendMiddle       Op = 0x01
	OpSendLast         Op = 0x02
	OpSendLastImm      Op = 0x03
	OpSendOnly         Op = 0x04
	OpSendOnlyImm      Op = 0x05
	OpWriteFirst       Op = 0x06
	OpWriteMiddle      Op = 0x07
	OpWriteLast        Op = 0x08
	OpWriteLastImm     Op = 0x09
	OpWriteOnly        Op = 0x0a
	OpWriteOnlyImm     Op = 0x0b
	OpReadRequest      Op = 0x0c
	OpReadRespFirst    Op = 0x0d
	OpReadRespMiddle   Op = 0x0e
	OpReadRespLast     Op = 0x0f
	OpReadRespOnly     Op = 0x10
	OpAcknowledge      Op = 0x11
	OpAtomicAck        Op = 0x12
	OpCompareSwap      Op = 0x13
	OpFetchAdd         Op = 0x14
	OpSendLastInv      Op = 0x16
	OpSendOnlyInv      Op = 0x17
	OpFlush            Op = 0x1c
	OpAtomicWrite      Op = 0x1d
	opMask                = 0x1f
	opCount               = opMask + 1
	transportOpcodeEnd    = 0x100
)

// Opcodes of the reliable connected transport.
const (
	RCSendFirst      = Opcode(OpSendFirst)
	RCSendMiddle     = Opcode(OpSendMiddle)
	RCSendLast       = Opcode(OpSendLast)
	RCSendLastImm    = Opcode(OpSendLastImm)
	RCSendOnly       = Opcode(OpSendOnly)
	RCSendOnlyImm    = Opcode(OpSendOnlyImm)
	RCWriteFirst     = Opcode(OpWriteFirst)
	RCWriteMiddle    = Opcode(OpWriteMiddle)
	RCWriteLast      = Opcode(OpWriteLast)
	RCWriteLastImm   = Opcode(OpWriteLastImm)
	RCWriteOnly      = Opcode(OpWriteOnly)
	RCWriteOnlyImm   = Opcode(OpWriteOnlyImm)
	RCReadRequest    = Opcode(OpReadRequest)
	RCReadRespFirst  = Opcode(OpReadRespFirst)
	RCReadRespMiddle = Opcode(OpReadRespMiddle)
	RCReadRespLast   = Opcode(OpReadRespLast)
	RCReadRespOnly   = Opcode(OpReadRespOnly)
	RCAcknowledge    = Opcode(OpAcknowledge)
	RCAtomicAck      = Opcode(OpAtomicAck)
	RCCompareSwap    = Opcode(OpCompareSwap)
	RCFetchAdd       = Opcode(OpFetchAdd)
	RCSendLastInv    = Opcode(OpSendLastInv)
	RCSendOnlyInv    = Opcode(OpSendOnlyInv)
	RCFlush          = Opcode(OpFlush)
	RCAtomicWrite    = Opcode(OpAtomicWrite)
)

// Opcodes of the unreliable connected transport.
const (
	UCSendFirst    = Opcode(TransportUC) | Opcode(OpSendFirst)
	UCSendMiddle   = Opcode(TransportUC) | Opcode(OpSendMiddle)
	UCSendLast     = Opcode(TransportUC) | Opcode(OpSendLast)
	UCSendLastImm  = Opcode(TransportUC) | Opcode(OpSendLastImm)
	UCSendOnly     = Opcode(TransportUC) | Opcode(OpSendOnly)
	UCSendOnlyImm  = Opcode(TransportUC) | Opcode(OpSendOnlyImm)
	UCWriteFirst   = Opcode(TransportUC) | Opcode(OpWriteFirst)
	UCWriteMiddle  = Opcode(TransportUC) | Opcode(OpWriteMiddle)
	UCWriteLast    = Opcode(TransportUC) | Opcode(OpWriteLast)
	UCWriteLastImm = Opcode(TransportUC) | Opcode(OpWriteLastImm)
	UCWriteOnly    = Opcode(TransportUC) | Opcode(OpWriteOnly)
	UCWriteOnlyImm = Opcode(TransportUC) | Opcode(OpWriteOnlyImm)
)

// Opcodes of the unreliable datagram transport.
const (
	UDSendOnly    = Opcode(TransportUD) | Opcode(OpSendOnly)
	UDSendOnlyImm = Opcode(TransportUD) | Opcode(OpSendOnlyImm)
)

// Opcodes of the extended reliable connected transport.
const (
	XRCSendFirst      = Opcode(TransportXRC) | Opcode(OpSendFirst)
	XRCSendMiddle     = Opcode(TransportXRC) | Opcode(OpSendMiddle)
	XRCSendLast       = Opcode(TransportXRC) | Opcode(OpSendLast)
	XRCSendLastImm    = Opcode(TransportXRC) | Opcode(OpSendLastImm)
	XRCSendOnly       = Opcode(TransportXRC) | Opcode(OpSendOnly)
	XRCSendOnlyImm    = Opcode(TransportXRC) | Opcode(OpSendOnlyImm)
	XRCWriteFirst     = Opcode(TransportXRC) | Opcode(OpWriteFirst)
	XRCWriteMiddle    = Opcode(TransportXRC) | Opcode(OpWriteMiddle)
	XRCWriteLast      = Opcode(TransportXRC) | Opcode(OpWriteLast)
	XRCWriteLastImm   = Opcode(TransportXRC) | Opcode(OpWriteLastImm)
	XRCWriteOnly      = Opcode(TransportXRC) | Opcode(OpWriteOnly)
	XRCWriteOnlyImm   = Opcode(TransportXRC) | Opcode(OpWriteOnlyImm)
	XRCReadRequest    = Opcode(TransportXRC) | Opcode(OpReadRequest)
	XRCReadRespFirst  = Opcode(TransportXRC) | Opcode(OpReadRespFirst)
	XRCReadRespMiddle = Opcode(TransportXRC) | Opcode(OpReadRespMiddle)
	XRCReadRespLast   = Opcode(TransportXRC) | Opcode(OpReadRespLast)
	XRCReadRespOnly   = Opcode(TransportXRC) | Opcode(OpReadRespOnly)
	XRCAcknowledge    = Opcode(TransportXRC) | Opcode(OpAcknowledge)
	XRCAtomicAck      = Opcode(TransportXRC) | Opcode(OpAtomicAck)
	XRCCompareSwap    = Opcode(TransportXRC) | Opcode(OpCompareSwap)
	XRCFetchAdd       = Opcode(TransportXRC) | Opcode(OpFetchAdd)
	XRCSendLastInv    = Opcode(TransportXRC) | Opcode(OpSendLastInv)
	XRCSendOnlyInv    = Opcode(TransportXRC) | Opcode(OpSendOnlyInv)
	XRCFlush          = Opcode(TransportXRC) | Opcode(OpFlush)
	XRCAtomicWrite    = Opcode(TransportXRC) | Opcode(OpAtomicWrite)
)

// Transport returns the transport of the packet.
func (o Opcode) Transport() Transport { return Transport(o & transportMask) }

// Op returns the operation of the packet.
func (o Opcode) Op() Op { return Op(o & opMask) }

// With returns the opcode of operation op in transport t, which need not exist (see
// [Opcode.Valid]).
func (t Transport) With(op Op) Opcode { return Opcode(t) | Opcode(op) }

// Valid reports whether the opcode exists.
func (o Opcode) Valid() bool { return opcodes[o].headerLen != 0 }

// Ext returns the set of extension headers that follow the BTH.
func (o Opcode) Ext() Ext { return opcodes[o].ext }

// HeaderLen returns the length of all headers in bytes, the BTH included; 0 for a nonexistent
// opcode.
func (o Opcode) HeaderLen() int { return int(opcodes[o].headerLen) }

// Response reports whether the packet goes from responder to requester.
func (o Opcode) Response() bool { return opcodes[o].has(response) }

// Starts reports whether the packet is the first (or only) one of its message.
func (o Opcode) Starts() bool { return opcodes[o].has(starts) }

// Ends reports whether the packet is the last (or only) one of its message.
func (o Opcode) Ends() bool { return opcodes[o].has(ends) }

// HasPayload reports whether the packet may carry payload.
func (o Opcode) HasPayload() bool { return opcodes[o].has(payload) }

// String returns the name in the specification, such as RC_RDMA_WRITE_ONLY.
func (o Opcode) String() string {
	if !o.Valid() {
		return fmt.Sprintf("opcode 0x%02x", uint8(o))
	}
	return o.Transport().String() + "_" + operations[o.Op()].name
}

// String returns the name of the transport.
func (t Transport) String() string {
	switch t {
	case TransportRC:
		return "RC"
	case TransportUC:
		return "UC"
	case TransportUD:
		return "UD"
	case TransportXRC:
		return "XRC"
	default:
		return fmt.Sprintf("transport 0x%02x", uint8(t))
	}
}
