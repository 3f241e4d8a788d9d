package verbs

import "net/netip"

// Provider finds and opens devices. Its methods may be called from any
// goroutine.
type Provider interface {
	// Name is the provider's name: "soft", "ibv".
	Name() string
	// Devices lists the devices that can be opened now. Implements: ibv_get_device_list.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by name. For an unknown name it returns a *DeviceError that lists the
	// known ones. Implements: ibv_open_device.
	Open(name string) (Context, error)
	// CreateCMChannel makes a channel for connection events.
	// Implements: rdma_create_event_channel.
	CreateCMChannel() (CMChannel, error)
}

// Object is anything of the contract that can be closed.
type Object interface {
	// String names the object for messages: kind, number, device.
	String() string
	// Close destroys the object; idempotent. Close of a parent with living children, or of an
	// object with unacknowledged events, returns ErrBusy and changes nothing. Implements:
	// ibv_close_device, ibv_dealloc_pd, ibv_dealloc_td, ibv_destroy_comp_channel, ibv_destroy_qp,
	// ibv_close_xrcd, and those that the objects name.
	Close() error
}

// Source is an object that a reactor can sleep on. It announces events in one of two ways, the
// same for its whole life:
//
//   - by a descriptor, which polls readable while there are events: a device
//     of the kernel;
//   - by calling a function for each event: a device of this process, which saves
//     a system call per event.
type Source interface {
	// FD is the descriptor, which belongs to the object; -1 if there is none. A source that calls
	// a function may also have one, for other pollers.
	FD() int
	// Notify sets the function that the source calls, from any goroutine, for every event queued,
	// and once immediately, from within Notify. ring must not block. nil removes it. A source
	// that announces events only by its descriptor ignores it.
	Notify(ring func())
}

// Context is an open device.
//
// Implements: struct ibv_context.
type Context interface {
	Object
	// Device returns the name the context was opened by, and the location of the device.
	Device() DeviceInfo
	// QueryDevice reads the limits. Implements: ibv_query_device,
	// ibv_query_device_ex.
	QueryDevice() (DeviceAttr, error)
	// QPLimits returns the capacities that a queue pair of type t is granted at least, if it is created with them:
	// want where the device has that much, else less, the depths as far as the elements and inline bytes leave room.
	// A capacity that want leaves 0 stays 0. With windows it is for one that may bind windows
	// (QPInitAttr.Windows), whose requests some devices make larger. The answer is for the context's other queue pairs as for the first: it
	// is no reservation. The first call for a want may make and destroy some queue pairs, and blocks as long.
	// Any goroutine. ErrNotSupported where the device has no queue pairs of the type. Implements: ibv_create_qp as a
	// query.
	QPLimits(t QPType, want QPCap, windows bool) (QPCap, error)
	// QueryPort reads a port; ports count from 1. Implements: ibv_query_port.
	QueryPort(port uint8) (PortAttr, error)
	// QueryGID reads an entry of a port's address table.
	// Implements: ibv_query_gid.
	QueryGID(port uint8, index int) (GID, error)
	// QueryGIDEntry reads an entry with its type; for an empty entry it may return ErrNoGID.
	// Implements: ibv_query_gid_ex.
	QueryGIDEntry(port uint8, index int) (GIDEntry, error)
	// QueryGIDTable reads all entries of all ports that are not empty, by port and index. It reads them with one system
	// call, because a table may have a thousand entries. The caller owns the slice. The error is ErrNotSupported if the
	// library is too old.
	// Implements: ibv_query_gid_table.
	QueryGIDTable() ([]GIDEntry, error)
	// QueryPKey reads an entry of a port's partition key table, in host order.
	// Implements: ibv_query_pkey.
	QueryPKey(port uint8, index int) (uint16, error)
	// AllocPD makes a protection domain. Implements: ibv_alloc_pd.
	AllocPD() (PD, error)
	// OpenXRCD opens an extended-connection domain. fd -1 makes a private one; otherwise the file
	// (its inode) names a domain that contexts of the device share; oflags are os.O_CREATE and
	// os.O_EXCL. Implements: ibv_open_xrcd.
	OpenXRCD(fd int, oflags int) (XRCD, error)
	// CreateCompChannel makes a completion channel.
	// Implements: ibv_create_comp_channel.
	CreateCompChannel() (CompChannel, error)
	// CreateCQ makes a completion queue of at least cqe entries. ch may be
	// nil; vector is below CompVectors. Implements: ibv_create_cq,
	// ibv_create_cq_ex.
	CreateCQ(cqe int, ch CompChannel, vector int, userData uint64) (CQ, error)
	// AllocTD makes a thread domain. It returns ErrNotSupported where the device does not use
	// thread domains. It does not block. Implements: ibv_alloc_td.
	AllocTD() (TD, error)
	// Async is the channel of asynchronous events; it lives as long as the
	// context.
	Async() AsyncChannel
	// Execute carries out one batch; see IOBatch. It does not block. It may be called
	// concurrently only for different queue pairs and completion queues, and none that the batch
	// names may be closed meanwhile. Queue pairs and shared receive queues of one thread domain,
	// and the completion queues that they complete to, count as one in this respect; see TD. Each
	// group holds its own outcome. The error is ErrDeviceRemoved, and then the call did nothing:
	// from then on the device touches no memory, outstanding requests never complete, and the
	// objects can only be closed.
	Execute(t *IOBatch) error
	// Objects counts the live objects, for leak checks.
	Objects() ObjectCount
}

// PollReceiver is a Context whose device receives on the goroutines that poll its completion queues.
type PollReceiver interface {
	// Rest notes that the caller, which has polled, sleeps or does something else: the device receives by itself from now
	// on. After a poll without Rest it waits up to a millisecond for the next poll first. Any goroutine; it
	// does not block.
	Rest()
	// Receives reports whether a poll may receive packets of other processes. While it is false, only goroutines
	// of this process cause completions, and each completion raises its event on that goroutine. Any goroutine;
	// it does not block.
	Receives() bool
}

// Patient is a QP that knows for how long it asks a peer that does not answer. A query would tell too, but
// may wait for the firmware.
type Patient interface {
	// Patience returns the ACK timeout code and the retry count that were set last; 0 and 0 before RTS. Any
	// goroutine; it does not block but for a step that is under way.
	Patience() (timeout, retries uint8)
}

// Addresser is a Context whose addresses are those of network interfaces of the system: they come and
// go, and the routes of the system choose among them. Any goroutine may call its methods, which make
// system calls.
type Addresser interface {
	// Addrs reads the addresses that the device has now and this process can use, best first: IPv4,
	// IPv6, link-local, the last with the name of the interface as zone. Device returns those of the
	// last call. A device without any is ErrNoGID, which says what is missing.
	Addrs() ([]netip.Addr, error)
	// Checking reports whether the last reading of the addresses left out one that an interface is still
	// checking for duplicates (RFC 4862, 5.4). It becomes usable within some seconds, without an event.
	Checking() bool
	// Source returns the address of the device from which the system sends to dst. If the system sends from
	// an address that the device does not have, it is one of the device in the network of dst, as for a
	// second port in one subnet; the zero Addr if there is none.
	Source(dst netip.Addr) (netip.Addr, error)
}

// Explainer is a Context whose device knows more about failures than a completion reports.
type Explainer interface {
	// Explain returns a possible reason why requests complete with s, and what helps, for a message; "" if it
	// knows none. Any goroutine; it does not block for long.
	Explain(s WCStatus) string
}

// PD is a protection domain.
//
// Implements: struct ibv_pd.
type PD interface {
	Object
	Context() Context
	// RegMR registers length bytes at addr, which must be off-heap memory of this module: a
	// Memory, or memory of the runtime. Peers name it by addresses from iova on. The memory must
	// stay mapped until Close. With AccessOnDemand it is not locked; if the device cannot do that
	// (DeviceAttr.ODP) the result is ErrNotSupported. Implements: ibv_reg_mr_iova2,
	// ibv_reg_mr_iova.
	RegMR(addr, length, iova uint64, access AccessFlags) (MR, error)
	// RegImplicit registers the whole address space of the process on demand, for local use: its
	// LKey is valid for any address. Work requests may name only off-heap memory with it, because
	// the Go runtime moves and reuses its own. Access that opens the process to peers is refused
	// (ErrInvalid). ErrNotSupported where DeviceAttr.ODP lacks ODPImplicit. It does not block.
	// Implements: ibv_reg_mr with addr 0 and length SIZE_MAX.
	RegImplicit(access AccessFlags) (MR, error)
	// RegDMABuf registers length bytes from offset of a buffer that another device exports, such
	// as the memory of a GPU. Peers and local requests name it by addresses from iova on, which
	// must have the same offset in its page as offset. The library does not map it into the
	// process. fd stays the caller's, which may close it: the region holds the buffer. Of the
	// access bits only local write, the remote ones and relaxed ordering may be set. It may block
	// while the exporter moves the memory. ErrNotSupported where the device or its driver cannot
	// do it; ErrInvalid for an unsuitable fd. Implements: ibv_reg_dmabuf_mr.
	RegDMABuf(fd int, offset, length, iova uint64, access AccessFlags) (MR, error)
	// AdviseMR announces future use of on-demand regions of this domain to the device: each range
	// by its address as requests name it and the LKey. It is a hint: pages may be evicted again,
	// and only AdviseFlush makes it wait and report errors. list is read before it returns.
	// ErrInvalid for ranges outside on-demand regions, or that may not be written;
	// ErrNotSupported where the device has no on-demand paging, or not this advice. Implements:
	// ibv_advise_mr.
	AdviseMR(a Advice, flags AdviseFlags, list []SGE) error
	// AllocParentDomain makes a domain that stands for this one, with a thread domain for the
	// queue pairs and shared receive queues made in it (TD lists the rules for posting and
	// polling); a nil td gives none. Objects of both may be used together. This domain and td
	// must outlive it. ErrNotSupported where the device has no parent domains. It does not block.
	// Implements: ibv_alloc_parent_domain.
	AllocParentDomain(td TD) (PD, error)
	// AllocMW makes a memory window. Implements: ibv_alloc_mw.
	AllocMW(t MWType) (MW, error)
	// CreateQP makes a queue pair in RESET and writes the granted capacities into init.Cap.
	// Implements: ibv_create_qp.
	CreateQP(init *QPInitAttr) (QP, error)
	// CreateSRQ makes a shared receive queue. Implements: ibv_create_srq,
	// ibv_create_srq_ex.
	CreateSRQ(attr *SRQAttr) (SRQ, error)
	// CreateAH makes an address handle. Implements: ibv_create_ah.
	CreateAH(attr *AHAttr) (AH, error)
}

// MR is a registered memory region.
//
// Implements: struct ibv_mr.
type MR interface {
	Object
	Addr() uint64 // 0 where the region has no single address in this process
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
	// RKey is the key of the last binding; before the first binding the key it was made with. The
	// next binding takes IncRKey of it.
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
	// GetEvent takes one event; ok is false when there is none. Each event taken must be
	// acknowledged at its queue. Implements: ibv_get_cq_event (on a non-blocking descriptor).
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
	// Resize changes the capacity and keeps the queued completions. Implements: ibv_resize_cq.
	Resize(cqe int) error
	// AckEvents acknowledges n events; cheap to batch. Close returns ErrBusy until all are
	// acknowledged. Implements: ibv_ack_cq_events.
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
	// Modify moves the state machine or sets attributes. An illegal step is refused with
	// ErrInvalidTransition and changes nothing. Implements: ibv_modify_qp.
	Modify(attr *QPAttr, mask QPAttrMask) error
	// Query reads all attributes. Implements: ibv_query_qp.
	Query() (QPAttr, error)
	// InitAttr returns the creation attributes, with the capacities granted. It does not block.
	// Implements: ibv_query_qp, its init_attr.
	InitAttr() QPInitAttr
	// DataInOrder returns the guaranteed order in which the data of one message of this kind is
	// written: for READs posted here, and for WRITEs and SENDs that arrive here. A program that
	// watches memory for the last byte of a message needs it; 0 guarantees nothing. It holds for
	// memory that this CPU reads, and not for regions with relaxed ordering; libmlx5 answers for
	// queue pairs in RTS only. ErrNotSupported where libibverbs has no such call (rdma-core
	// before 36). From 36 to 45 it has the call but no flags, and libmlx5 answers a query with a
	// flag by 0: no guarantee. On processors other than x86 no release guarantees anything. It
	// does not block. Implements: ibv_query_qp_data_in_order with
	// IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS.
	DataInOrder(op WROpcode) (DataOrder, error)
	// QueryECE reads the options that the queue pair offers, or the agreed ones. ErrNotSupported
	// where the device has none. Implements: ibv_query_ece.
	QueryECE() (ECE, error)
	// SetECE requests options, before INIT, and returns the ones in use. ErrNotSupported where
	// the device has none. Implements: ibv_set_ece.
	SetECE(want ECE) (ECE, error)
	// AttachMcast attaches the queue pair to a multicast group, whose datagrams are then
	// delivered here too; UD only; attaching twice is the same as once. lid is 0 on RoCE. Close
	// detaches. Implements: ibv_attach_mcast.
	AttachMcast(gid GID, lid uint16) error
	// DetachMcast ends it; ErrInvalid when it was not attached. Implements: ibv_detach_mcast.
	DetachMcast(gid GID, lid uint16) error
}
