package verbs

import "time"

// QPType is the transport service of a queue pair.
//
// Implements: enum ibv_qp_type.
type QPType uint32

// The queue pair types.
const (
	QPTRC        QPType = 2
	QPTUC        QPType = 3
	QPTUD        QPType = 4
	QPTRawPacket QPType = 8
	QPTXRCSend   QPType = 9
	QPTXRCRecv   QPType = 10
	QPTDriver    QPType = 0xff
)

var qpTypeNames = map[uint32]string{
	2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_SEND", 10: "XRC_RECV", 0xff: "DRIVER",
}

// String is the name in <infiniband/verbs.h> without its IBV_QPT_ prefix.
func (t QPType) String() string { return enumName(qpTypeNames, "QPType", uint32(t)) }

// QPState is the state of a queue pair. [CheckTransition] holds the permitted steps.
//
//	           ┌──────── any state (but RESET to ERR) ─┐
//	           v                                       v
//	RESET → INIT → RTR → RTS ⇄ SQD                    ERR → RESET
//	                      │ ↖
//	                      v  │ (UC, UD: a send failed)
//	                     SQE ┘
//
// Implements: enum ibv_qp_state.
type QPState uint32

// The queue pair states.
const (
	QPSReset   QPState = 0
	QPSInit    QPState = 1 // receives may be posted
	QPSRTR     QPState = 2 // receives are filled
	QPSRTS     QPState = 3 // sends are sent
	QPSSQD     QPState = 4 // the send queue drains
	QPSSQE     QPState = 5 // the send queue failed
	QPSErr     QPState = 6 // everything outstanding is flushed
	QPSUnknown QPState = 7
)

var qpStateNames = map[uint32]string{
	0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR", 7: "UNKNOWN",
}

// String is the name in <infiniband/verbs.h> without its IBV_QPS_ prefix.
func (s QPState) String() string { return enumName(qpStateNames, "QPState", uint32(s)) }

// QPAttrMask names the members of a [QPAttr] that a call reads.
//
// Implements: enum ibv_qp_attr_mask.
type QPAttrMask uint32

// The attribute bits.
const (
	QPMState            QPAttrMask = 1 << 0
	QPMCurState         QPAttrMask = 1 << 1
	QPMEnSQDAsyncNotify QPAttrMask = 1 << 2
	QPMAccessFlags      QPAttrMask = 1 << 3
	QPMPKeyIndex        QPAttrMask = 1 << 4
	QPMPort             QPAttrMask = 1 << 5
	QPMQKey             QPAttrMask = 1 << 6
	QPMAV               QPAttrMask = 1 << 7
	QPMPathMTU          QPAttrMask = 1 << 8
	QPMTimeout          QPAttrMask = 1 << 9
	QPMRetryCnt         QPAttrMask = 1 << 10
	QPMRNRRetry         QPAttrMask = 1 << 11
	QPMRQPSN            QPAttrMask = 1 << 12
	QPMMaxQPRdAtomic    QPAttrMask = 1 << 13
	QPMAltPath          QPAttrMask = 1 << 14
	QPMMinRNRTimer      QPAttrMask = 1 << 15
	QPMSQPSN            QPAttrMask = 1 << 16
	QPMMaxDestRdAtomic  QPAttrMask = 1 << 17
	QPMPathMigState     QPAttrMask = 1 << 18
	QPMCap              QPAttrMask = 1 << 19
	QPMDestQPN          QPAttrMask = 1 << 20
	QPMRateLimit        QPAttrMask = 1 << 25
)

var qpAttrNames = []string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX",
	"PORT", "QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY",
	"RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN", 25: "RATE_LIMIT",
}

// String joins the names of the bits set.
func (m QPAttrMask) String() string { return flagNames(qpAttrNames, uint32(m)) }

// MTU is a path MTU as the specification numbers it.
//
// Implements: enum ibv_mtu. Those above MTU4096 are the software RNIC's own: for paths between its
// processes, and MTUJumbo for links that carry a whole message in one packet.
type MTU uint32

// The path MTUs.
const (
	MTU256   MTU = 1
	MTU512   MTU = 2
	MTU1024  MTU = 3
	MTU2048  MTU = 4
	MTU4096  MTU = 5
	MTU8192  MTU = 6
	MTU16384 MTU = 7
	MTU32768 MTU = 8
	MTUJumbo MTU = 0x80
)

// jumboBytes is the payload of MTUJumbo: the largest message of a port.
const jumboBytes = 1 << 31

// Bytes returns the payload of a packet of this MTU in bytes; 0 if m is not valid.
func (m MTU) Bytes() uint32 {
	switch {
	case m >= MTU256 && m <= MTU32768:
		return 128 << m
	case m == MTUJumbo:
		return jumboBytes
	}
	return 0
}

// QPCap holds the capacities of a queue pair. A provider may grant more than requested; creation
// writes back the granted values.
//
// Implements: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR     uint32 // work requests
	MaxRecvWR     uint32
	MaxSendSGE    uint32 // elements of one request
	MaxRecvSGE    uint32
	MaxInlineData uint32 // bytes
}

// QPInitAttr describes a queue pair to create.
//
// Implements: struct ibv_qp_init_attr.
type QPInitAttr struct {
	SendCQ   CQ
	RecvCQ   CQ
	SRQ      SRQ // nil: the queue pair has a receive queue of its own
	Cap      QPCap
	Type     QPType
	SQSigAll bool // every send completes, signaled or not
	UserData uint64
	XRCD     XRCD // CMID.CreateQP of type XRC_RECV: the domain
	// Windows permits BIND_MW and LOCAL_INV. Without it they must not be posted, and a provider need not
	// refuse them: the send queue of a device may have room for smaller requests only. It costs memory
	// that counts as locked (libmlx5 takes 192 bytes and not 48 for the parts of a request that are no data;
	// providers/mlx5/verbs.c, _sq_overhead).
	Windows bool
}

// AHAttr is a network destination. With the zero DGID it has no global routing: then DLID alone names a
// port of the same subnet of InfiniBand.
//
// Implements: struct ibv_ah_attr (is_global: DGID is not zero).
type AHAttr struct {
	DGID         GID
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	Port         uint8
}

// QPAttr holds the attributes that Modify sets and Query reads.
//
// Implements: struct ibv_qp_attr.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	QKey             uint32
	RQPSN            uint32 // 24 bits
	SQPSN            uint32 // 24 bits
	DestQPN          uint32 // 24 bits
	AccessFlags      AccessFlags
	Cap              QPCap
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRdAtomic      uint8 // READs and atomics outstanding as requester
	MaxDestRdAtomic  uint8 // as responder
	MinRNRTimer      uint8 // code, see RNRTimeout
	Port             uint8
	Timeout          uint8 // code, see AckTimeout
	RetryCnt         uint8 // 0 to 7
	RNRRetry         uint8 // 0 to 7; 7 means no limit
	AltPort          uint8
	AltTimeout       uint8
	RateLimit        uint32 // kbit/s
}

// RNRRetryInfinite is the RNRRetry without a limit.
const RNRRetryInfinite = 7

// ackTimeoutUnit is the unit of the local ACK timeout (IBTA 9.7.6.1.3).
const ackTimeoutUnit = 4096 * time.Nanosecond

// maxAckTimeout is the largest code: it has 5 bits.
const maxAckTimeout = 31

// AckTimeoutCode reports whether code stands for a finite AckTimeout.
func AckTimeoutCode(code uint8) bool { return code != 0 && code <= maxAckTimeout }

// AckTimeout is the local ACK timeout of a 5-bit code: 4.096 µs × 2^code; code
// 0 is no timeout at all.
func AckTimeout(code uint8) time.Duration {
	code &= maxAckTimeout
	if code == 0 {
		return 0
	}
	return ackTimeoutUnit << code
}

// rnrUnit is the unit of the RNR timer table.
const rnrUnit = 10 * time.Microsecond

// rnrTable are the RNR NAK timers in units of 10 µs (IBTA table 45).
var rnrTable = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
	512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
	32768, 49152,
}

// RNRTimeout is the delay a 5-bit RNR NAK timer code asks for. Code 0 is the
// longest, 655.36 ms.
func RNRTimeout(code uint8) time.Duration { return time.Duration(rnrTable[code&31]) * rnrUnit }
