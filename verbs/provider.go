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
	// QueryGIDEntry reads an entry with its type; one that is empty may be
	// ErrNoGID. Implements: ibv_query_gid_ex.
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
	// AllocTD makes a thread domain; ErrNotSupported where the device makes
	// nothing of it. It does not block. Implements: ibv_alloc_td.
	AllocTD() (TD, error)
	// Async is the channel of asynchronous events; it lives as long as the
	// context.
	Async() AsyncChannel
	// Execute carries out one turn; see Turn. It does not block. It may be
	// called concurrently only for different queue pairs and completion
	// queues, and none that it names may be closed meanwhile. Queue pairs and
	// shared receive queues of one thread domain, and the completion queues that
	// they complete to, count as one for that: TD says which. The outcome of each
	// group is in the group. The error says that the device is gone
	// (ErrDeviceRemoved), and then nothing was done: from then on the device
	// touches no memory, what was outstanding never completes, and the objects
	// can only be closed.
	Execute(t *IOBatch) error
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
	// of this module's: a Memory, or what the runtime has. Peers name it by addresses from iova on. The
	// memory must stay mapped until Close. With AccessOnDemand it is not locked
	// (DeviceAttr.ODP says whether the device can; ErrNotSupported otherwise).
	// Implements: ibv_reg_mr_iova2.
	RegMR(addr, length, iova uint64, access AccessFlags) (MR, error)
	// RegImplicit registers the whole address space of the process on demand, for
	// local use: its LKey goes with any address. Work requests may name off-heap
	// memory with it and no other: what the Go runtime has moves and is given to
	// others. Access that opens the process to peers is refused (ErrInvalid).
	// ErrNotSupported where DeviceAttr.ODP has no ODPImplicit. It does not block.
	// Implements: ibv_reg_mr with addr 0 and length SIZE_MAX.
	RegImplicit(access AccessFlags) (MR, error)
	// RegDMABuf registers length bytes from offset of a buffer that another device
	// exports, such as the memory of a GPU. Peers and local requests name it by
	// addresses from iova on, which has the same place in its page as offset. The
	// process has no view of it through this library. fd stays the caller's, who
	// may close it: the region holds the buffer. Of the access bits only local
	// write, the remote ones and relaxed ordering may be set. It may block while
	// the exporter moves the memory. ErrNotSupported where the device or its driver
	// cannot; what fd is wrong for is ErrInvalid.
	// Implements: ibv_reg_dmabuf_mr.
	RegDMABuf(fd int, offset, length, iova uint64, access AccessFlags) (MR, error)
	// AdviseMR tells the device what will be used of regions on demand of this
	// domain: each range by its address as requests name it and the LKey. It is
	// an advice: pages may go away again, and only AdviseFlush has it report and
	// wait. list is read before it returns. ErrInvalid for ranges that are no
	// region's on demand, or may not be written; ErrNotSupported where the device
	// pages nothing on demand, or not so. Implements: ibv_advise_mr.
	AdviseMR(a Advice, flags AdviseFlags, list []SGE) error
	// AllocParentDomain makes a domain that stands for this one, with a thread
	// domain for the queue pairs and shared receive queues that are made in it
	// (TD says what that asks of posting and polling); td nil gives none. Objects
	// of both may be used together. This domain and td must outlive it. ErrNotSupported where the
	// device has none. It does not block. Implements: ibv_alloc_parent_domain.
	AllocParentDomain(td TD) (PD, error)
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
	Addr() uint64 // 0 where no one place of this process belongs to it
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
	// DataInOrder says in which order the data of one message of this kind is
	// written: of READs that are posted here, of WRITEs and SENDs that come here.
	// Whoever watches memory for a message's last byte needs it; 0 promises
	// nothing. It holds for memory that this CPU reads, and not for regions with
	// relaxed ordering; libmlx5 answers for queue pairs in RTS only.
	// ErrNotSupported where libibverbs has no such call (rdma-core before 36).
	// From 36 to 45 it has the call and no flags, and libmlx5 answers a question
	// with a flag by 0: nothing is promised there. On other processors than x86 it
	// promises nothing in any release. It does not block.
	// Implements: ibv_query_qp_data_in_order with
	// IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS.
	DataInOrder(op WROpcode) (DataOrder, error)
	// QueryECE reads what the queue pair offers, or what was agreed.
	// ErrNotSupported where there is no such thing. Implements: ibv_query_ece.
	QueryECE() (ECE, error)
	// SetECE asks for options, before INIT, and returns what of them is used.
	// ErrNotSupported where there is no such thing. Implements: ibv_set_ece.
	SetECE(want ECE) (ECE, error)
	// AttachMcast has the datagrams of a multicast group delivered here too;
	// UD only; attaching twice is once. lid is 0 on RoCE. Close detaches.
	// Implements: ibv_attach_mcast.
	AttachMcast(gid GID, lid uint16) error
	// DetachMcast ends it; ErrInvalid when it was not attached.
	// Implements: ibv_detach_mcast.
	DetachMcast(gid GID, lid uint16) error
}
