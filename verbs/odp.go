package verbs

// On-demand paging: a region registered with [AccessOnDemand] locks no memory.
// The device translates its pages when they are touched, and asks the system for
// those that are not there; a page may go away again. Registering such a region
// costs no time by its size, and it counts towards no limit of locked memory; the
// first access to a page costs a fault of the device, which [PD.AdviseMR] can
// take beforehand.

// ODPCaps is what a device can do with memory that is paged on demand: whether at
// all, and with which operations of each transport. An operation that is not
// among them ends in a protection error on such memory.
//
// Implements: struct ibv_odp_caps, and xrc_odp_caps of struct ibv_device_attr_ex.
type ODPCaps struct {
	General         ODPGeneral
	RC, UC, UD, XRC ODPOps
}

// ODPGeneral says whether a device pages on demand; bits.
//
// Implements: enum ibv_odp_general_caps.
type ODPGeneral uint64

// The kinds of regions on demand.
const (
	ODPSupport  ODPGeneral = 1 << 0 // of a range: AccessOnDemand
	ODPImplicit ODPGeneral = 1 << 1 // of the whole address space: PD.RegImplicit
)

// ODPOps are the operations that may use memory on demand; bits.
//
// Implements: enum ibv_odp_transport_cap_bits.
type ODPOps uint32

// The operations.
const (
	ODPSend        ODPOps = 1 << 0 // SEND reads it
	ODPRecv        ODPOps = 1 << 1 // a receive writes it
	ODPWrite       ODPOps = 1 << 2 // RDMA WRITE, from it and into it
	ODPRead        ODPOps = 1 << 3 // RDMA READ
	ODPAtomic      ODPOps = 1 << 4
	ODPSRQRecv     ODPOps = 1 << 5 // a receive of a shared queue
	ODPFlush       ODPOps = 1 << 6
	ODPAtomicWrite ODPOps = 1 << 7
)

var odpOpNames = []string{"SEND", "RECV", "WRITE", "READ", "ATOMIC", "SRQ_RECV", "FLUSH", "ATOMIC_WRITE"}

// String joins the names of the bits set.
func (o ODPOps) String() string { return flagNames(odpOpNames, uint32(o)) }

// Has tells whether the device takes regions on demand.
func (c ODPCaps) Has() bool { return c.General&ODPSupport != 0 }

// Advice is what to do with pages of a region on demand.
//
// Implements: enum ibv_advise_mr_advice.
type Advice uint32

// The advices.
const (
	// AdvisePrefetch brings pages in, to be read by the device.
	AdvisePrefetch Advice = 0
	// AdvisePrefetchWrite brings pages in, to be written too; the region needs
	// AccessLocalWrite.
	AdvisePrefetchWrite Advice = 1
	// AdvisePrefetchNoFault tells the device of the pages that the system has
	// already, and brings none in.
	AdvisePrefetchNoFault Advice = 2
)

var adviceNames = map[uint32]string{0: "PREFETCH", 1: "PREFETCH_WRITE", 2: "PREFETCH_NO_FAULT"}

// String is the name in <infiniband/verbs.h> without its prefix.
func (a Advice) String() string { return enumName(adviceNames, "Advice", uint32(a)) }

// AdviseFlags modify an advice.
//
// Implements: the IBV_ADVISE_MR_FLAG_ values.
type AdviseFlags uint32

// AdviseFlush has the call return when the advice was followed, and not before:
// it blocks for the pages. Without it the device does so when it likes, and says
// nothing of what it finds wrong meanwhile.
const AdviseFlush AdviseFlags = 1 << 0
