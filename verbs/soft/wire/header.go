package wire

// DefaultPKey is the default partition, full membership.
const DefaultPKey = 0xffff

// GSIQKey is the queue key of queue pair 1, which receives management datagrams.
const GSIQKey = 0x80010000

// Header holds the fields of all transport headers of one packet, in host order. Opcode determines
// the used ones; [Parse] zeroes the others. It holds no pointers and may be copied.
//
// Implements: IBTA volume 1, 9.2 to 9.3.
type Header struct {
	Opcode Opcode

	// BTH
	Solicited bool
	MigReq    bool  // path migration state; true on a port without alternate path
	FECN      bool  // this packet met congestion
	BECN      bool  // packets in the other direction met congestion
	AckReq    bool  // the responder shall acknowledge
	PadCount  uint8 // bytes that pad the payload to a multiple of 4: 0 to 3
	PKey      uint16
	DestQP    uint32 // 24 bits
	PSN       PSN

	// XRCETH
	XRCSRQ uint32 // 24 bits

	// DETH
	QKey  uint32
	SrcQP uint32 // 24 bits

	// RETH, and AtomicETH without Length
	VA     uint64
	RKey   uint32
	Length uint32 // of the whole message, bytes

	// AtomicETH: SwapAdd is the value to store or to add; Compare is used by COMPARE_SWAP only.
	SwapAdd uint64
	Compare uint64

	// AETH
	Syndrome Syndrome
	MSN      PSN // messages completed by the responder, 24 bits

	// AtomicAckETH
	Orig uint64 // the word's value before the operation

	// ImmDt
	Imm uint32

	// IETH
	InvKey uint32

	// FETH
	FlushPlacement   uint8 // 4 bits: 1 global visibility, 2 persistence
	FlushSelectivity uint8 // 2 bits: 0 range, 1 whole region
}

// Bits of the second byte of the BTH.
const (
	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthPadMask   = 0x3
	bthTVerMask  = 0x0f
)

// Positions of the fields in the first eight bytes of the BTH, read as one number; the word of the
// destination queue pair is the lowest.
const (
	bthOpcodeAt = 56
	bthFlagsAt  = 48
	bthPKeyAt   = 32
)

// Bits of the words that hold the destination queue pair and the PSN, and of the FETH.
const (
	bthFECN   = 1 << 31
	bthBECN   = 1 << 30
	bthAckReq = 1 << 31

	qpnMask = 1<<24 - 1

	fethPlacementMask    = 0xf
	fethSelectivityShift = 4
	fethSelectivityMask  = 0x3
)

// PadLen returns the number of bytes that pad a payload of n bytes to a multiple of 4.
func PadLen(n int) uint8 { return uint8(-n & bthPadMask) }
