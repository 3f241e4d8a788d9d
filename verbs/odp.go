package verbs

// On-demand paging: a region registered with [AccessOnDemand] locks no memory. The device
// translates its pages on first access and asks the system for missing ones; the system may take
// a page away again. The cost of such a registration does not depend on its size, and the region
// does not count towards the limit of locked memory. The first access to a page costs a device
// page fault, which [PD.AdviseMR] can avoid.

// ODPCaps describes on-demand paging of a device: whether it is supported, and for which
// operations of each transport. Any other operation on such memory ends in a protection error.
//
// Implements: struct ibv_odp_caps, and xrc_odp_caps of struct ibv_device_attr_ex.
type ODPCaps struct {
	General         ODPGeneral
	RC, UC, UD, XRC ODPOps
}

// ODPGeneral is the kind of on-demand paging that a device supports; bits.
//
// Implements: enum ibv_odp_general_caps.
type ODPGeneral uint64

// The kinds of regions on demand.
const (
	ODPSupport  ODPGeneral = 1 << 0 // of a range: AccessOnDemand
	ODPImplicit ODPGeneral = 1 << 1 // of the whole address space: PD.RegImplicit
)

// ODPOps are the operations that may use on-demand memory; bits.
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

// Has reports whether the device supports on-demand regions.
func (c ODPCaps) Has() bool { return c.General&ODPSupport != 0 }

// Advice is a hint about pages of an on-demand region.
//
// Implements: enum ibv_advise_mr_advice.
type Advice uint32

// The advice values.
const (
	// AdvisePrefetch brings in pages for reading by the device.
	AdvisePrefetch Advice = 0
	// AdvisePrefetchWrite brings in pages for writing too; the region needs AccessLocalWrite.
	AdvisePrefetchWrite Advice = 1
	// AdvisePrefetchNoFault maps the pages that are already resident into the device, and brings
	// none in.
	AdvisePrefetchNoFault Advice = 2
)

var adviceNames = map[uint32]string{0: "PREFETCH", 1: "PREFETCH_WRITE", 2: "PREFETCH_NO_FAULT"}

// String is the name in <infiniband/verbs.h> without its prefix.
func (a Advice) String() string { return enumName(adviceNames, "Advice", uint32(a)) }

// AdviseFlags modify an advice.
//
// Implements: the IBV_ADVISE_MR_FLAG_ values.
type AdviseFlags uint32

// AdviseFlush makes the call block until the advice has been carried out. Without it the device
// carries it out later and reports no errors.
const AdviseFlush AdviseFlags = 1 << 0
