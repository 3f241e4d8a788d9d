package verbs

// AccessFlags are the permitted uses of registered memory or of a queue pair.
//
// Implements: enum ibv_access_flags.
type AccessFlags uint32

// The access bits. Reading locally is always allowed.
const (
	AccessLocalWrite      AccessFlags = 1 << 0
	AccessRemoteWrite     AccessFlags = 1 << 1 // needs AccessLocalWrite
	AccessRemoteRead      AccessFlags = 1 << 2
	AccessRemoteAtomic    AccessFlags = 1 << 3 // needs AccessLocalWrite
	AccessMWBind          AccessFlags = 1 << 4
	AccessZeroBased       AccessFlags = 1 << 5
	AccessOnDemand        AccessFlags = 1 << 6
	AccessHugeTLB         AccessFlags = 1 << 7
	AccessFlushGlobal     AccessFlags = 1 << 8
	AccessFlushPersistent AccessFlags = 1 << 9
	AccessRelaxedOrdering AccessFlags = 1 << 20
)

var accessNames = []string{
	"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND",
	"ZERO_BASED", "ON_DEMAND", "HUGETLB", "FLUSH_GLOBAL", "FLUSH_PERSISTENT",
	20: "RELAXED_ORDERING",
}

// String joins the names of the bits set.
func (a AccessFlags) String() string { return flagNames(accessNames, uint32(a)) }

// Consistent reports whether a region may be registered with these bits: remote write and remote
// atomic need local write.
func (a AccessFlags) Consistent() bool {
	return a&(AccessRemoteWrite|AccessRemoteAtomic) == 0 || a&AccessLocalWrite != 0
}

// MWType is the kind of a memory window.
//
// Implements: enum ibv_mw_type.
type MWType uint32

// The memory window types: 1 is bound by a call, 2 by a work request.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// FlushPlacement is the placement that a FLUSH guarantees for earlier data; bits.
//
// Implements: enum ibv_placement_type (libibverbs IBV_FLUSH_*).
type FlushPlacement uint8

// The placements of FLUSH.
const (
	FlushGlobal     FlushPlacement = 1 << 0 // visible to every agent of the remote host
	FlushPersistent FlushPlacement = 1 << 1 // persistent at the remote host
)

// FlushSelectivity is the range of memory that a FLUSH covers.
//
// Implements: enum ibv_selectivity_level.
type FlushSelectivity uint8

// The selectivity levels of FLUSH.
const (
	FlushRange FlushSelectivity = 0
	FlushMR    FlushSelectivity = 1
)
