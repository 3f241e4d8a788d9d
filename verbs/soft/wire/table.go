package wire

// Ext is a set of extension headers.
type Ext uint16

// Values of Ext, in the order of the headers in a packet.
const (
	ExtXRCETH    Ext = 1 << iota // shared receive queue of an XRC request
	ExtDETH                      // queue key and source of a datagram
	ExtFETH                      // range of a FLUSH
	ExtRETH                      // remote range
	ExtAtomicETH                 // remote word and operands
	ExtAETH                      // acknowledgement
	ExtAtomicAck                 // the value before an atomic
	ExtImm                       // immediate data
	ExtIETH                      // key to invalidate
)

// Lengths of the headers in bytes.
const (
	BTHLen       = 12
	XRCETHLen    = 4
	DETHLen      = 8
	FETHLen      = 4
	RETHLen      = 16
	AtomicETHLen = 28
	AETHLen      = 4
	AtomicAckLen = 8
	ImmLen       = 4
	IETHLen      = 4

	// MaxHeader is the largest length of all headers of a packet: an atomic over XRC.
	MaxHeader = BTHLen + XRCETHLen + AtomicETHLen
)

var extLens = [...]uint8{
	XRCETHLen, DETHLen, FETHLen, RETHLen, AtomicETHLen, AETHLen, AtomicAckLen, ImmLen, IETHLen,
}

type opFlags uint8

const (
	response opFlags = 1 << iota
	starts
	ends
	payload
)

type opInfo struct {
	ext       Ext
	headerLen uint8 // 0: no such opcode
	flags     opFlags
}

func (i opInfo) has(f opFlags) bool { return i.flags&f != 0 }

// in is the transports that have an operation besides RC and XRC, which have them all.
type in uint8

const (
	alsoUC in = 1 << iota
	alsoUD
)

// operations holds the properties of an operation that are the same in every transport. An empty
// name is a reserved operation.
//
// Implements: IBTA volume 1, table 38; rxe_opcode[] in rxe_opcode.c.
var operations = [opCount]struct {
	name  string
	ext   Ext
	flags opFlags
	in    in
}{
	OpSendFirst:      {"SEND_FIRST", 0, payload | starts, alsoUC},
	OpSendMiddle:     {"SEND_MIDDLE", 0, payload, alsoUC},
	OpSendLast:       {"SEND_LAST", 0, payload | ends, alsoUC},
	OpSendLastImm:    {"SEND_LAST_WITH_IMMEDIATE", ExtImm, payload | ends, alsoUC},
	OpSendOnly:       {"SEND_ONLY", 0, payload | starts | ends, alsoUC | alsoUD},
	OpSendOnlyImm:    {"SEND_ONLY_WITH_IMMEDIATE", ExtImm, payload | starts | ends, alsoUC | alsoUD},
	OpWriteFirst:     {"RDMA_WRITE_FIRST", ExtRETH, payload | starts, alsoUC},
	OpWriteMiddle:    {"RDMA_WRITE_MIDDLE", 0, payload, alsoUC},
	OpWriteLast:      {"RDMA_WRITE_LAST", 0, payload | ends, alsoUC},
	OpWriteLastImm:   {"RDMA_WRITE_LAST_WITH_IMMEDIATE", ExtImm, payload | ends, alsoUC},
	OpWriteOnly:      {"RDMA_WRITE_ONLY", ExtRETH, payload | starts | ends, alsoUC},
	OpWriteOnlyImm:   {"RDMA_WRITE_ONLY_WITH_IMMEDIATE", ExtRETH | ExtImm, payload | starts | ends, alsoUC},
	OpReadRequest:    {"RDMA_READ_REQUEST", ExtRETH, starts | ends, 0},
	OpReadRespFirst:  {"RDMA_READ_RESPONSE_FIRST", ExtAETH, response | payload | starts, 0},
	OpReadRespMiddle: {"RDMA_READ_RESPONSE_MIDDLE", 0, response | payload, 0},
	OpReadRespLast:   {"RDMA_READ_RESPONSE_LAST", ExtAETH, response | payload | ends, 0},
	OpReadRespOnly:   {"RDMA_READ_RESPONSE_ONLY", ExtAETH, response | payload | starts | ends, 0},
	OpAcknowledge:    {"ACKNOWLEDGE", ExtAETH, response | starts | ends, 0},
	OpAtomicAck:      {"ATOMIC_ACKNOWLEDGE", ExtAETH | ExtAtomicAck, response | starts | ends, 0},
	OpCompareSwap:    {"COMPARE_SWAP", ExtAtomicETH, starts | ends, 0},
	OpFetchAdd:       {"FETCH_ADD", ExtAtomicETH, starts | ends, 0},
	OpSendLastInv:    {"SEND_LAST_WITH_INVALIDATE", ExtIETH, payload | ends, 0},
	OpSendOnlyInv:    {"SEND_ONLY_WITH_INVALIDATE", ExtIETH, payload | starts | ends, 0},
	OpFlush:          {"FLUSH", ExtFETH | ExtRETH, starts | ends, 0},
	OpAtomicWrite:    {"ATOMIC_WRITE", ExtRETH, payload | starts | ends, 0},
}

// opcodes is the lookup table of the encoder and the parser, by opcode.
var opcodes = buildOpcodes()

func buildOpcodes() (t [transportOpcodeEnd]opInfo) {
	add := func(tr Transport, op Op, ext Ext, f opFlags) {
		n := uint8(BTHLen)
		for i, l := range extLens {
			if ext&(1<<i) != 0 {
				n += l
			}
		}
		t[tr.With(op)] = opInfo{ext: ext, headerLen: n, flags: f}
	}
	for i, o := range operations {
		if o.name == "" {
			continue
		}
		op := Op(i)
		add(TransportRC, op, o.ext, o.flags)
		xrc := o.ext
		if o.flags&response == 0 {
			xrc |= ExtXRCETH // requests only: a response goes to the sending queue pair
		}
		add(TransportXRC, op, xrc, o.flags)
		if o.in&alsoUC != 0 {
			add(TransportUC, op, o.ext, o.flags)
		}
		if o.in&alsoUD != 0 {
			add(TransportUD, op, o.ext|ExtDETH, o.flags)
		}
	}
	return t
}
