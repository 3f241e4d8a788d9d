package main

import (
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Version is that of the report's form. It changes when a field changes its name, type or meaning, and not
// when one is added.
const Version = 1

// Report is the report. Its JSON is that of encoding/json: durations are in nanoseconds (their names end
// in _ns), sizes in bytes. The text has the same fields in the same order; a tag "note" is what it says
// behind a name.
type Report struct {
	Version    int        `json:"version"`
	Date       string     `json:"date"`
	Devices    []string   `json:"devices"` // the dialing one, the accepting one
	Place      Place      `json:"place"`
	Granted    Granted    `json:"granted"`
	Agreed     Agreed     `json:"agreed"`
	Timed      Timed      `json:"timed"`
	Counted    Counted    `json:"counted"`
	Deviations Deviations `json:"deviations"`
	Parts      []Part     `json:"parts"`
}

// Part is one part of the program's work.
type Part struct {
	Name  string        `json:"name"`
	Took  time.Duration `json:"took_ns"`
	Limit time.Duration `json:"limit_ns"`
	Cut   string        `json:"cut,omitempty"` // why it did not do all its work
}

// Place is where the report was made.
type Place struct {
	Machine  Machine       `json:"machine"`
	System   System        `json:"system"`
	Process  Process       `json:"process"`
	Devices  []DevicePlace `json:"devices"`
	Modules  Item[string]  `json:"rdma_modules"`
	NetNS    Item[string]  `json:"rdma_name_space_mode"`
	Programs Versions      `json:"versions"`
}

// Machine is the hardware but for the device.
type Machine struct {
	Product    Item[string] `json:"product"`
	Processor  Item[string] `json:"processor"`
	Processors int          `json:"processors"`
	Hypervisor Item[string] `json:"hypervisor"`
	Memory     Item[int64]  `json:"memory_bytes"`
	NUMANodes  Item[int]    `json:"numa_nodes"`
}

// System is the operating system.
type System struct {
	Kernel      Item[string] `json:"kernel" mask:"-"`
	OS          Item[string] `json:"os" mask:"-"`
	Arch        string       `json:"arch"`
	PageSize    int          `json:"page_bytes"`
	HugePages   Item[string] `json:"huge_pages"`
	Transparent Item[string] `json:"transparent_huge_pages"`
	Container   Item[string] `json:"container"`
}

// Process is what limits the process.
type Process struct {
	Memlock    Item[string] `json:"memlock"`
	IPCLock    Item[bool]   `json:"cap_ipc_lock"`
	OpenFiles  Item[string] `json:"open_files"`
	CgroupRDMA Item[string] `json:"cgroup_rdma"`
	Fork       Item[string] `json:"fork_status"`
	Variables  []string     `json:"variables"` // that change a driver library's behavior
}

// Versions are those of the programs.
type Versions struct {
	Verbena   Item[string]   `json:"verbena" mask:"-"`
	Go        string         `json:"go" mask:"-"`
	Libraries Item[[]string] `json:"libraries" mask:"-"` // loaded ones of RDMA
}

// DevicePlace is a device.
type DevicePlace struct {
	Name       string             `json:"name"`
	Driver     Item[string]       `json:"driver"`
	Function   Item[string]       `json:"function"` // PF, VF, SF
	VFs        Item[int]          `json:"virtual_functions"`
	Vendor     Item[string]       `json:"vendor"`
	Board      Item[string]       `json:"board"`
	Firmware   Item[string]       `json:"firmware" mask:"-"`
	NodeType   Item[string]       `json:"node_type"`
	PCILink    Item[string]       `json:"pci_link"`
	IOMMU      Item[string]       `json:"iommu"`
	NUMANode   int                `json:"numa_node"` // -1: unknown
	VectorCPUs Item[string]       `json:"processors_of_vectors"`
	Ports      Item[[]PortPlace]  `json:"ports"`
	GIDs       Item[[]GIDPlace]   `json:"gids"`
	NetDevs    Item[[]NetPlace]   `json:"network_devices"`
	Traffic    Item[[]TrafficRow] `json:"traffic_class"`
}

// PortPlace is a port.
type PortPlace struct {
	Port       int    `json:"port"`
	State      string `json:"state"`
	LinkLayer  string `json:"link_layer"`
	Rate       string `json:"rate"`
	MaxMTU     uint32 `json:"max_mtu"`
	ActiveMTU  uint32 `json:"active_mtu"`
	MaxMessage uint32 `json:"max_message"`
	GIDs       int    `json:"gid_entries"`
	PKeys      int    `json:"pkey_entries"`
	LID        string `json:"lid"` // whether there is one
}

// GIDPlace is an entry of a port's address table that is not empty.
type GIDPlace struct {
	Port    int    `json:"port"`
	Index   int    `json:"index"`
	Type    string `json:"type"`
	NetDev  string `json:"netdev"`
	Address string `json:"address"`
	Chosen  string `json:"chosen"` // "yes": a plain connection sends from it
}

// NetPlace is a network device of a GID.
type NetPlace struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // ethernet, vlan 5, bond 802.3ad of 2, infiniband
	State string `json:"state"`
	MTU   string `json:"mtu"`
	Below string `json:"on"` // the devices below it
}

// TrafficRow is a setting of traffic classes.
type TrafficRow struct {
	Of      string `json:"of"`
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Unknown string `json:"unknown,omitempty"`
}

// Granted is what the dialing device grants.
type Granted struct {
	Device      Item[verbs.DeviceAttr] `json:"device" note:"as the driver says; MaxInline 0: it does not say"`
	Caps        Item[string]           `json:"capabilities"`
	Opcodes     Item[string]           `json:"opcodes"`
	QueuePairs  []QPGrant              `json:"queue_pairs"`
	Limits      []QPLimits             `json:"largest_by_type" note:"each found with the others small, tried up to 65536"`
	Refusals    []Refusal              `json:"refusals"`
	CQs         []CQGrant              `json:"completion_queues"`
	Resize      Item[string]           `json:"resize_cq"`
	Pinned      []Pinned               `json:"pinned" note:"what the process's VmPin, VmLck and VmRSS grew by"`
	Connections Item[ConnsPinned]      `json:"pinned_by_connections" note:"both ends: what the process's VmPin, VmLck and VmRSS grew by"`
}

// QPGrant has the capacities asked for a queue pair, and those granted.
type QPGrant struct {
	For     string `json:"for"`
	Type    string `json:"type"`
	Asked   string `json:"asked"`
	Granted string `json:"granted"`
	Unknown string `json:"unknown,omitempty"`
}

// QPLimits are the largest values with which a queue pair can be made, each with the others small: found by
// bisection. Depths are tried up to 65536.
type QPLimits struct {
	Type      string `json:"type"`
	SendDepth int    `json:"send_depth"`
	RecvDepth int    `json:"recv_depth"`
	SendSGE   int    `json:"send_elements"`
	RecvSGE   int    `json:"recv_elements"`
	Inline    int    `json:"inline_bytes"`
	Usual     int    `json:"depth_with_4_elements"`
	Unknown   string `json:"unknown,omitempty"`
}

// Refusal is what a value larger by one than the one in QPLimits caused.
type Refusal struct {
	Type  string `json:"type"`
	What  string `json:"what"`
	Asked int    `json:"asked"`
	Error string `json:"error"`
}

// CQGrant is a completion queue.
type CQGrant struct {
	Asked   int    `json:"asked"`
	Granted int    `json:"granted"`
	Unknown string `json:"unknown,omitempty"`
}

// Pinned is the memory that an object has the kernel pin, or that its driver library locks or maps.
type Pinned struct {
	Object  string `json:"object"`
	Pinned  int64  `json:"pinned_bytes"`   // VmPin
	Locked  int64  `json:"locked_bytes"`   // VmLck
	Mapped  int64  `json:"resident_bytes"` // VmRSS
	Unknown string `json:"unknown,omitempty"`
}

// ConnsPinned is Pinned for connections of the runtime, both ends in one process.
type ConnsPinned struct {
	Connections int   `json:"connections"`
	Reactors    int   `json:"reactors"` // of each end
	Pinned      int64 `json:"pinned_bytes"`
	Locked      int64 `json:"locked_bytes"`
	Mapped      int64 `json:"resident_bytes"`
}

// Agreed is what connections of the runtime agreed on.
type Agreed struct {
	Ends     Item[[]EndAttr] `json:"ends"`
	RetryExc Item[RetryExc]  `json:"retry_exceeded" note:"a WRITE to a queue pair that is gone, with 6 retries and with 7, which a device may take for no limit"`
}

// EndAttr is an end of a connection, as the device reports its queue pair.
type EndAttr struct {
	Connection string `json:"connection"`
	End        string `json:"end"`
	Timeout    string `json:"timeout"`
	Retry      int    `json:"retry"`
	RNRRetry   int    `json:"rnr_retry"`
	RNRTimer   string `json:"rnr_timer"`
	Reads      int    `json:"reads_out"`
	Served     int    `json:"reads_in"`
	MTU        uint32 `json:"mtu"`
	SL         int    `json:"sl"`
	TC         int    `json:"traffic_class"`
	Hops       int    `json:"hops"`
	GIDIndex   int    `json:"gid_index"`
	Caps       string `json:"capacities"`
}

// RetryExc is how a device gives up a peer that is gone.
type RetryExc struct {
	Timeout  string        `json:"timeout"`
	Retry    int           `json:"retry"`
	Shortest time.Duration `json:"shortest_ns"` // by the specification; the longest is four times that
	Took     time.Duration `json:"took_ns"`
	Status   string        `json:"status"`
}

// Timed are the times.
type Timed struct {
	Calls         []Times     `json:"control_calls" note:"no p99 of fewer than 100 calls"`
	Registrations []Times     `json:"registrations"`
	Dials         []Times     `json:"dials"`
	AtOnce        Item[Burst] `json:"dials_at_once" note:"from the beginning of all to the end of each; both ends in this process"`
	Messages      []Times     `json:"messages"`
	DataPath      []Times     `json:"data_path"`
}

// Times are the times of one call.
type Times struct {
	Call    string        `json:"call"`
	N       int           `json:"n"`
	Median  time.Duration `json:"median_ns"`
	P99     time.Duration `json:"p99_ns"` // 0 if N is less than 100
	Max     time.Duration `json:"max_ns"`
	Unknown string        `json:"unknown,omitempty"`
}

// Burst are dials that begin at once.
type Burst struct {
	Asked      int           `json:"asked"`
	Connected  int           `json:"connected"`
	All        time.Duration `json:"all_ns"` // until the last one
	Median     time.Duration `json:"median_ns"`
	P99        time.Duration `json:"p99_ns"`
	FirstError string        `json:"first_error,omitempty"`
}

// Counted are the counters.
type Counted struct {
	Stats    []Stats            `json:"stats" note:"type Stats of package reactor, at the end of parts connections to closing"`
	Counters Item[[]Counter]    `json:"hardware_counters" note:"those that are not 0: before all parts, and what they grew by; part lost peer causes retries"`
	Events   Item[[]AsyncEvent] `json:"async_events"`
}

// Stats are the counters of a runtime at the end of the part with connections.
type Stats struct {
	End     string              `json:"end"`
	Stats   Item[reactor.Stats] `json:"stats"`
	Objects Item[string]        `json:"objects_left"`
}

// Counter is a counter of a driver that is not 0.
type Counter struct {
	Device string `json:"device"`
	Name   string `json:"name"` // hw_counters/NAME, ports/1/counters/NAME
	Before uint64 `json:"before"`
	During uint64 `json:"during"` // the difference afterwards
}

// AsyncEvent is a kind of asynchronous event that came.
type AsyncEvent struct {
	Type string `json:"type"`
	N    int    `json:"n"`
}

// Deviations are cases of the conformance suite.
type Deviations struct {
	Runs    Item[[]Run]     `json:"runs" note:"of the conformance suite, before the report: a test of verbs/ibv for each pair of devices"`
	Cases   Item[[]Case]    `json:"cases" note:"that did not pass in these runs: new, or known in the tables of this driver"`
	Reasons Item[[]Skipped] `json:"not_applicable"`
}

// Run is a run of the suite.
type Run struct {
	Pair    string `json:"pair"`
	MTU     uint32 `json:"mtu"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Known   int    `json:"known_deviations"`
	Skipped int    `json:"not_applicable"`
}

// Case is a case that did not pass: "new" if it failed, "known" if it is in our tables of deviations.
type Case struct {
	State  string   `json:"state"`
	Case   string   `json:"case"`
	Pairs  []string `json:"pairs"`
	Reason string   `json:"reason"`
}

// Skipped is a reason why cases were not applicable.
type Skipped struct {
	Pair   string `json:"pair"`
	Cases  int    `json:"cases"`
	Reason string `json:"reason"`
}
