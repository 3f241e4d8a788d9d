package verbs

// Provider finds and opens devices. Its methods may be called from any
// goroutine.
type Provider interface {
	// Name is the provider's name: "soft", "ibv".
	Name() string
	// Devices lists what can be opened now.
	// Implements: ibv_get_device_list.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by name. An unknown name is a *DeviceError that
	// lists the known ones.
	// Implements: ibv_open_device.
	Open(name string) (Context, error)
	// CreateCMChannel makes a channel for connection events.
	// Implements: rdma_create_event_channel.
	CreateCMChannel() (CMChannel, error)
}

// Object is anything of the contract that can be closed.
type Object interface {
	// String names the object for messages: kind, number, device.
	String() string
	// Close destroys the object; idempotent. A parent with living children,
	// or an object with unacknowledged events, answers ErrBusy and lives on.
	Close() error
}

// Source is something a reactor can sleep on. It says that it has events in
// one of two ways, and the same way all its life:
//
//   - by a descriptor, which polls readable while there are events: a device
//     of the kernel;
//   - by announcing each event to a function: a device of this process, which
//     saves it a system call per event.
type Source interface {
	// FD is the descriptor, which belongs to the object; -1 if there is none.
	// A source that announces may have one too, for others to poll.
	FD() int
	// Notify gives a source that announces the function to call, from any
	// goroutine, for every event queued, and once at once, from within Notify.
	// ring does not block. nil ends it. A source that does not announce
	// ignores it.
	Notify(ring func())
}

// Context is an open device.
//
// Implements: struct ibv_context.
type Context interface {
	Object
	// Device is the name the context was opened by, and where it is.
	Device() DeviceInfo
	// QueryDevice reads the limits. Implements: ibv_query_device.
	QueryDevice() (DeviceAttr, error)
	// QueryPort reads a port; ports count from 1. Implements: ibv_query_port.
	QueryPort(port uint8) (PortAttr, error)
	// QueryGID reads an entry of a port's address table.
	// Implements: ibv_query_gid.
	QueryGID(port uint8, index int) (GID, error)
	// QueryGIDEntry reads an entry with its type. Implements: ibv_query_gid_ex.
	QueryGIDEntry(port uint8, index int) (GIDEntry, error)
	// QueryPKey reads an entry of a port's partition key table, in host order.
	// Implements: ibv_query_pkey.
	QueryPKey(port uint8, index int) (uint16, error)
	// AllocPD makes a protection domain. Implements: ibv_alloc_pd.
	AllocPD() (PD, error)
	// OpenXRCD opens an extended-connection domain. fd -1 makes a private one;
	// otherwise the file (its inode) names a domain that contexts of the device
	// share; oflags are os.O_CREATE and os.O_EXCL. Implements: ibv_open_xrcd.
	OpenXRCD(fd int, oflags int) (XRCD, error)
	// CreateCompChannel makes a completion channel.
	// Implements: ibv_create_comp_channel.
	CreateCompChannel() (CompChannel, error)
	// CreateCQ makes a completion queue of at least cqe entries. ch may be
	// nil; vector is below CompVectors. Implements: ibv_create_cq.
	CreateCQ(cqe int, ch CompChannel, vector int, userData uint64) (CQ, error)
	// Async is the channel of asynchronous events; it lives as long as the
	// context.
	Async() AsyncChannel
	// Turn carries out one turn; see Turn. It does not block. It may be
	// called concurrently only for different queue pairs and completion
	// queues, and none that it names may be closed meanwhile. The outcome of each group is in the group. The error says that
	// the device is gone (ErrDeviceRemoved), and then nothing was done: from
	// then on the device touches no memory, what was outstanding never
	// completes, and the objects can only be closed.
	Turn(t *Turn) error
	// Objects counts what is alive, for leak checks.
	Objects() ObjectCount
}

// PD is a protection domain.
//
// Implements: struct ibv_pd.
type PD interface {
	Object
	Context() Context
	// RegMR registers length bytes at addr, which must be off-heap memory
	// known to internal/mem. Peers name it by addresses from iova on. The
	// memory must stay mapped until Close.
	// Implements: ibv_reg_mr_iova2.
	RegMR(addr, length, iova uint64, access AccessFlags) (MR, error)
	// AllocMW makes a memory window. Implements: ibv_alloc_mw.
	AllocMW(t MWType) (MW, error)
	// CreateQP makes a queue pair in RESET and writes what was granted into
	// init.Cap. Implements: ibv_create_qp.
	CreateQP(init *QPInitAttr) (QP, error)
	// CreateSRQ makes a shared receive queue. Implements: ibv_create_srq.
	CreateSRQ(attr *SRQAttr) (SRQ, error)
	// CreateAH makes an address handle. Implements: ibv_create_ah.
	CreateAH(attr *AHAttr) (AH, error)
}

// MR is a registered memory region.
//
// Implements: struct ibv_mr.
type MR interface {
	Object
	Addr() uint64
	Length() uint64
	IOVA() uint64
	LKey() uint32
	RKey() uint32
	Handle() uint64 // for SendWR.BindMR
}

// MW is a memory window.
//
// Implements: struct ibv_mw.
type MW interface {
	Object
	Type() MWType
	// RKey is the key it was last bound with; before the first binding the one
	// it was made with. The next binding takes IncRKey of it.
	RKey() uint32
	Handle() uint64 // for SendWR.MW
}

// AH is an address handle. It must outlive the completion of every request
// that uses it.
//
// Implements: struct ibv_ah.
type AH interface {
	Object
	Handle() uint64 // for SendWR.SetUD
}

// CompChannel delivers completion events of any number of queues.
//
// Implements: struct ibv_comp_channel.
type CompChannel interface {
	Object
	Source
	// GetEvent takes one event; ok is false when there is none. Each event
	// taken must be acknowledged at its queue. Implements: ibv_get_cq_event
	// (on a non-blocking descriptor).
	GetEvent() (cq CQ, ok bool, err error)
}

// CQ is a completion queue.
//
// Implements: struct ibv_cq.
type CQ interface {
	Object
	Context() Context
	Capacity() int // entries
	UserData() uint64
	// Resize changes the capacity, keeping what is queued.
	// Implements: ibv_resize_cq.
	Resize(cqe int) error
	// AckEvents acknowledges n events; cheap to batch. Close answers ErrBusy
	// until all are. Implements: ibv_ack_cq_events.
	AckEvents(n int)
}

// QP is a queue pair.
//
// Implements: struct ibv_qp.
type QP interface {
	Object
	Context() Context
	Num() uint32
	Type() QPType
	UserData() uint64
	// Modify moves the state machine or sets attributes; an illegal step is
	// refused with ErrInvalidTransition and changes nothing.
	// Implements: ibv_modify_qp.
	Modify(attr *QPAttr, mask QPAttrMask) error
	// Query reads all attributes. Implements: ibv_query_qp.
	Query() (QPAttr, error)
	// InitAttr is what it was made of, with the capacities granted. It does
	// not block. Implements: ibv_query_qp, its init_attr.
	InitAttr() QPInitAttr
	// AttachMcast has the datagrams of a multicast group delivered here too;
	// UD only; attaching twice is once. lid is 0 on RoCE. Close detaches.
	// Implements: ibv_attach_mcast.
	AttachMcast(gid GID, lid uint16) error
	// DetachMcast ends it; ErrInvalid when it was not attached.
	// Implements: ibv_detach_mcast.
	DetachMcast(gid GID, lid uint16) error
}

// XRCD is an extended-connection domain: queue pairs of type XRC_RECV and the
// shared receive queues that senders name by number.
//
// Implements: struct ibv_xrcd.
type XRCD interface {
	Object
	Context() Context
	// CreateQP makes an XRC_RECV queue pair: it has no queues, no completion
	// queue and no protection domain of its own; what arrives goes to the XRC
	// shared receive queue that the sender names. Only init.Type and
	// init.UserData are read. Implements: ibv_create_qp_ex with
	// IBV_QP_INIT_ATTR_XRCD.
	CreateQP(init *QPInitAttr) (QP, error)
	// OpenQP is another handle on an XRC_RECV queue pair of the domain; the
	// queue pair lives until its last handle is closed.
	// Implements: ibv_open_qp.
	OpenQP(num uint32, userData uint64) (QP, error)
}

// SRQAttr describes a shared receive queue. With XRCD set it is an XRC one
// (ibv_create_srq_ex, IBV_SRQT_XRC), which completes to CQ; the other kind
// completes to the receive completion queue of the queue pair that took the
// receive, and leaves both nil.
//
// Implements: struct ibv_srq_attr, struct ibv_srq_init_attr_ex.
type SRQAttr struct {
	MaxWR    uint32
	MaxSGE   uint32
	Limit    uint32 // entries left below which one SRQ_LIMIT_REACHED is raised; 0: none
	UserData uint64
	XRCD     XRCD
	CQ       CQ
}

// SRQ is a shared receive queue.
//
// Implements: struct ibv_srq.
type SRQ interface {
	Object
	Context() Context
	UserData() uint64
	// Num is the number by which XRC senders name it (SendWR.RemoteSRQN); 0 if
	// it is not an XRC one. Implements: ibv_get_srq_num.
	Num() uint32
	// SetLimit arms the limit event once more. Implements: ibv_modify_srq with
	// IBV_SRQ_LIMIT.
	SetLimit(limit uint32) error
	// Resize changes MaxWR, keeping what is posted; ErrInvalid when more is
	// posted. Call it with the turn held: posting meanwhile is a race.
	// Implements: ibv_modify_srq with IBV_SRQ_MAX_WR.
	Resize(maxWR uint32) error
	// Query reads the attributes. Implements: ibv_query_srq.
	Query() (SRQAttr, error)
}
