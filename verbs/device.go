package verbs

import (
	"fmt"
	"net/netip"
)

// GID addresses a port. RoCE maps an IP address to it.
//
// Implements: union ibv_gid.
type GID [16]byte

// GIDFromAddr returns the RoCE GID of an IP address (IPv4 as ::ffff:a.b.c.d).
func GIDFromAddr(a netip.Addr) GID { return GID(a.As16()) }

// Addr returns the IP address of a RoCE GID; it unmaps an IPv4-mapped address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Unicast reports whether the GID can be the address of one port: it is not unspecified, not a
// group, and not 255.255.255.255. It cannot recognize the broadcast address of a particular
// network. It does not block.
func (g GID) Unicast() bool {
	a := g.Addr()
	return !a.IsUnspecified() && !a.IsMulticast() && a != ipv4Broadcast
}

// ipv4Broadcast is the limited broadcast address (RFC 919).
var ipv4Broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// String is the IP form of the GID.
func (g GID) String() string { return g.Addr().String() }

// DeviceInfo names a device before it is opened.
//
// Implements: ibv_get_device_name, ibv_get_device_guid.
type DeviceInfo struct {
	Name      string
	GUID      uint64 // host order
	Transport Transport
	Addr      []netip.Addr // IP addresses of its ports, as far as known; of an Addresser they change
	// AnyAddr reports that the device has every address of this machine: a listener at the unspecified
	// address is reached at each.
	AnyAddr bool
	// QuickControl reports that the calls that make, move and destroy objects take microseconds: those
	// of a device of this process. Others may enter the kernel and wait for the firmware, milliseconds
	// for each.
	QuickControl bool
	Node         int // NUMA node; -1 when unknown
	// VectorCPUs are, of an open device, the processors that handle the interrupt of each completion
	// vector, as the system had placed them when the device was opened; nil when unknown.
	VectorCPUs [][]int
}

// Transport is the protocol between two devices.
//
// Implements: enum ibv_transport_type.
type Transport int32

// The transports.
const (
	TransportIB Transport = 0 // InfiniBand or RoCE
	// TransportIWARP is iWARP, which runs over TCP. It has no immediate data and no atomics, the memory of a READ
	// needs AccessRemoteWrite, and only the connection manager connects queue pairs. The end that accepts a
	// connection must not send before a message of the end that dials has arrived (RFC 5044, 7.1.2); some
	// drivers hold its requests back until then, others (siw) lose the connection.
	TransportIWARP Transport = 1
)

// AtomicCap is the scope within which a device's atomics are atomic.
//
// Implements: enum ibv_atomic_cap.
type AtomicCap uint32

// The atomic capabilities.
const (
	AtomicNone AtomicCap = 0
	AtomicHCA  AtomicCap = 1 // among operations of the same device only
	AtomicGlob AtomicCap = 2 // with respect to the CPUs too
)

// DeviceAttr holds the limits of a device. A limit of 0 means that the device does not have the
// feature.
//
// Implements: struct ibv_device_attr, struct ibv_device_attr_ex as far as a runtime uses it.
type DeviceAttr struct {
	FWVersion       string
	VendorID        uint32
	VendorPartID    uint32
	MaxMRSize       uint64 // bytes
	MaxQP           int
	MaxQPWR         int // work requests per queue
	MaxSGE          int
	MaxSGERead      int
	MaxInline       int // bytes; 0 when only creating a queue pair reveals it
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxPD           int
	MaxMW           int
	MaxMWSize       uint64 // bytes of one window; 0: all of its region
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxQPRdAtom     int   // as responder
	MaxQPInitRdAtom int   // as requester
	AckDelay        uint8 // longest delay of an acknowledgement, a code of AckTimeout
	MaxMcastGrp     int   // multicast groups
	MaxMcastQP      int   // queue pairs attached to one
	AtomicCap       AtomicCap
	Caps            DeviceCaps
	ODP             ODPCaps // memory on demand; zero: none
	CompVectors     int
	PhysPorts       int
	Opcodes         OpcodeSet // opcodes that RC queue pairs execute
	QPTypes         []QPType
	// BindsAgain reports whether the device executes a BIND_MW again when it retransmits earlier packets.
	// The second binding of a type 2 window fails, because the window is bound, and the queue pair enters ERR. So post
	// a BIND_MW only when all earlier requests have completed, as package reactor does. (Linux 6.12, rdma_rxe:
	// rxe_req.c, req_retry and rxe_requester.)
	BindsAgain bool
}

// DeviceCaps are the optional features of a device.
//
// Implements: enum ibv_device_cap_flags, and the upper ones of device_cap_flags_ex.
type DeviceCaps uint64

// The device capabilities.
const (
	CapCurrQPStateMod  DeviceCaps = 1 << 7  // modify checks CUR_STATE
	CapShutdownPort    DeviceCaps = 1 << 8  // the port can be taken down
	CapPortActiveEvent DeviceCaps = 1 << 10 // PORT_ACTIVE is raised
	CapRCRNRNakGen     DeviceCaps = 1 << 12 // an empty receive queue causes an RNR NAK
	CapSRQResize       DeviceCaps = 1 << 13 // a shared receive queue can be resized
	CapMemWindow       DeviceCaps = 1 << 17 // type 1 memory windows
	CapXRC             DeviceCaps = 1 << 20
	CapMemMgt          DeviceCaps = 1 << 21 // LOCAL_INV, SEND_WITH_INV
	CapMemWindow2A     DeviceCaps = 1 << 23
	CapMemWindow2B     DeviceCaps = 1 << 24 // type 2 windows, each tied to its queue pair
	CapFlushGlobal     DeviceCaps = 1 << 38
	CapFlushPersistent DeviceCaps = 1 << 39
	CapAtomicWrite     DeviceCaps = 1 << 40
)

// GIDType is the network protocol of an entry of the address table.
//
// Implements: enum ibv_gid_type.
type GIDType uint32

// The GID types.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)

var gidTypeNames = map[uint32]string{0: "IB", 1: "ROCE_V1", 2: "ROCE_V2"}

// String is the name in <infiniband/verbs.h> without its IBV_GID_TYPE_ prefix.
func (t GIDType) String() string { return enumName(gidTypeNames, "GIDType", uint32(t)) }

// GIDEntry is an entry of a port's address table.
//
// Implements: struct ibv_gid_entry.
type GIDEntry struct {
	GID    GID
	Index  int
	Port   uint8
	Type   GIDType
	NetDev uint32 // interface index of its network device; 0 when it has none
}

// McastQPN is the destination queue pair number of multicast datagrams.
const McastQPN = 0xffffff

// OpcodeSet is a set of send opcodes: bit i is opcode i.
type OpcodeSet uint32

// Opcodes returns the set of the given opcodes.
func Opcodes(os ...WROpcode) OpcodeSet {
	var s OpcodeSet
	for _, o := range os {
		s |= 1 << o
	}
	return s
}

// Has reports whether o is in the set.
func (s OpcodeSet) Has(o WROpcode) bool { return o < 32 && s&(1<<o) != 0 }

// PortState is the logical state of a port.
//
// Implements: enum ibv_port_state.
type PortState uint32

// The port states.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

var portStateNames = map[uint32]string{0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}

// String is the name in <infiniband/verbs.h> without its IBV_PORT_ prefix. Implements:
// ibv_port_state_str.
func (s PortState) String() string { return enumName(portStateNames, "PortState", uint32(s)) }

// PortAttr describes a port.
//
// Implements: struct ibv_port_attr.
type PortAttr struct {
	State      PortState
	MaxMTU     MTU
	ActiveMTU  MTU
	GIDTblLen  int
	MaxMsgSize uint32 // bytes of one message
	PKeyTblLen int
	LID        uint16
	LinkLayer  LinkLayer
}

// LinkLayer is the link layer protocol of a port.
//
// Implements: the IBV_LINK_LAYER_ values.
type LinkLayer uint8

// The link layers.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// ObjectCount is the number of live objects of each kind in a context. The zero value means that
// no object is left.
type ObjectCount struct {
	PD, TD, MR, MW, AH, CQ, CompChannel, QP, SRQ, XRCD, CMChannel, CMID int
}

// Zero reports whether no object is alive.
func (c ObjectCount) Zero() bool { return c == ObjectCount{} }

// String lists the counts of live objects.
func (c ObjectCount) String() string { return fmt.Sprintf("%+v", plainCount(c)) }

// plainCount is ObjectCount without its String, for formatting.
type plainCount ObjectCount
