package verbs

import (
	"net/netip"
	"time"
)

// PortSpace is the port space of a connection identifier.
//
// Implements: enum rdma_port_space.
type PortSpace uint16

// The port spaces.
const (
	PSIPoIB PortSpace = 0x0002
	PSTCP   PortSpace = 0x0106
	PSUDP   PortSpace = 0x0111
	PSIB    PortSpace = 0x013F
)

// Limits of private data, in bytes: what is left of the CM message after the
// 36 bytes the RDMA CM puts in front of a REQ's.
const (
	MaxPrivateConnect = 56  // Connect, port space TCP
	MaxPrivateAccept  = 196 // Accept
	MaxPrivateReject  = 148 // Reject
	MaxPrivateUDP     = 180 // port space UDP
)

// CMEventType is what happened to a connection identifier.
//
// Implements: enum rdma_cm_event_type.
type CMEventType uint32

// The connection events.
const (
	CMAddrResolved     CMEventType = 0
	CMAddrError        CMEventType = 1
	CMRouteResolved    CMEventType = 2
	CMRouteError       CMEventType = 3
	CMConnectRequest   CMEventType = 4
	CMConnectResponse  CMEventType = 5
	CMConnectError     CMEventType = 6
	CMUnreachable      CMEventType = 7
	CMRejected         CMEventType = 8
	CMEstablished      CMEventType = 9
	CMDisconnected     CMEventType = 10
	CMDeviceRemoval    CMEventType = 11
	CMMulticastJoin    CMEventType = 12
	CMMulticastError   CMEventType = 13
	CMAddrChange       CMEventType = 14
	CMTimewaitExit     CMEventType = 15
	CMAddrInfoResolved CMEventType = 16
	CMAddrInfoError    CMEventType = 17
	CMUser             CMEventType = 18
	CMInternal         CMEventType = 19
)

var cmEventNames = map[uint32]string{
	0: "ADDR_RESOLVED", 1: "ADDR_ERROR", 2: "ROUTE_RESOLVED", 3: "ROUTE_ERROR",
	4: "CONNECT_REQUEST", 5: "CONNECT_RESPONSE", 6: "CONNECT_ERROR",
	7: "UNREACHABLE", 8: "REJECTED", 9: "ESTABLISHED", 10: "DISCONNECTED",
	11: "DEVICE_REMOVAL", 12: "MULTICAST_JOIN", 13: "MULTICAST_ERROR",
	14: "ADDR_CHANGE", 15: "TIMEWAIT_EXIT", 16: "ADDRINFO_RESOLVED",
	17: "ADDRINFO_ERROR", 18: "USER", 19: "INTERNAL",
}

// String is the name in <rdma/rdma_cma.h> without its RDMA_CM_EVENT_ prefix.
//
// Implements: rdma_event_str.
func (t CMEventType) String() string { return enumName(cmEventNames, "CMEventType", uint32(t)) }

// Reject reasons a CMRejected event carries in Status (IBTA table 102).
const (
	RejNoQP             = 1
	RejNoResources      = 3
	RejTimeout          = 4
	RejInvalidServiceID = 8 // nobody listens there
	RejStaleConn        = 10
	RejConsumer         = 28 // the listener refused; private data says why
)

// ConnParam is what the two sides agree on, and RetryCount, which each end sets
// for itself: Connect sends it to the peer too, and a CONNECT_REQUEST brings the
// peer's, which is not used.
//
// Implements: struct rdma_conn_param, whose retry_count rdma_accept ignores.
type ConnParam struct {
	PrivateData        []byte
	ResponderResources uint8 // READs and atomics served at once
	InitiatorDepth     uint8 // READs and atomics asked at once
	FlowControl        bool
	RetryCount         uint8 // 0 to 7: of this end's requests that are not answered
	RNRRetryCount      uint8 // 0 to 7: of the peer's requests that find no receive here; 7 is for ever
	SRQ                bool
	QPNum              uint32 // ignored when the identifier has a queue pair
}

// MaxPeerAckTimeout is the largest ACK timeout that comes of what a peer asks for,
// a code: 4.3 s. Linux asks for less on any path. With the code of an hour, or
// none, who connects would keep the other end's operations for ever.
const MaxPeerAckTimeout = 20

// UDPQKey is the queue key of every queue pair in port space UDP.
//
// Implements: RDMA_UDP_QKEY.
const UDPQKey = 0x01234567

// UDParam says how to reach a peer in port space UDP, or a multicast group: what
// an address handle is made of, and the queue pair to send to.
//
// Implements: struct rdma_ud_param.
type UDParam struct {
	PrivateData []byte // valid until Ack
	AH          AHAttr
	QPNum       uint32
	QKey        uint32
}

// CMEvent is one connection event. Conn.PrivateData is valid until Ack and may
// be longer than what was sent, padded with zeros.
//
// Implements: struct rdma_cm_event.
type CMEvent struct {
	Type     CMEventType
	ID       CMID // for CONNECT_REQUEST a new identifier
	ListenID CMID // CONNECT_REQUEST: who listened
	Status   int  // negative errno, or the reason of a REJECTED
	Conn     ConnParam
	UD       UDParam // port space UDP: CONNECT_REQUEST (private data), ESTABLISHED; MULTICAST_JOIN
}

// CMChannel delivers connection events.
//
// Implements: struct rdma_event_channel.
type CMChannel interface {
	Object
	Source
	// CreateID makes an identifier that reports here.
	// Implements: rdma_create_id.
	CreateID(ps PortSpace, userData uint64) (CMID, error)
	// GetEvent takes one event; ok is false when there is none. Each must be
	// acknowledged. Implements: rdma_get_cm_event (non-blocking).
	GetEvent() (ev CMEvent, ok bool, err error)
	// Ack acknowledges an event. Implements: rdma_ack_cm_event.
	Ack(ev CMEvent)
}

// CMID is a connection identifier, the socket of RDMA. Calls start work whose
// outcome comes as an event; none blocks. Closing one destroys its queue pair.
//
//	active:  ResolveAddr ─ ADDR_RESOLVED ─ ResolveRoute ─ ROUTE_RESOLVED ─
//	         CreateQP ─ Connect ─ ESTABLISHED | REJECTED | UNREACHABLE | CONNECT_ERROR
//	passive: Bind ─ Listen ─ CONNECT_REQUEST(new id) ─ CreateQP ─ Accept ─ ESTABLISHED
//	both:    Disconnect ─ DISCONNECTED ─ TIMEWAIT_EXIT
//
// In port space UDP nothing is connected: Connect asks for the listener's queue
// pair, ESTABLISHED brings it (CMEvent.UD), and Accept is the answer; there is
// no Disconnect. When the device goes away every identifier bound to it gets
// DEVICE_REMOVAL, and must be closed.
//
// Implements: struct rdma_cm_id.
type CMID interface {
	Object
	// UserData is the value given at creation; a CONNECT_REQUEST's
	// identifier inherits the listener's. SetUserData replaces it.
	UserData() uint64
	SetUserData(v uint64)
	// Bind takes a local address; port 0 lets the provider choose; an
	// unspecified address binds to every device. Implements: rdma_bind_addr.
	Bind(local netip.AddrPort) error
	// ResolveAddr finds the device that reaches dst and binds to it. src may
	// be the zero value. Implements: rdma_resolve_addr.
	ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute finds the path. Implements: rdma_resolve_route.
	ResolveRoute(timeout time.Duration) error
	// SetAckTimeout sets the local ACK timeout of this end of a connection: a code
	// from 1 to 31 as [AckTimeout] takes it. The queue pair gets the larger of code
	// and DeviceAttr.AckDelay in its step to RTS, whatever the peer asks for. The end
	// that connects calls it before ResolveRoute, and its request tells the peer; the
	// end that accepts calls it before Accept. By default the provider chooses, on
	// Linux by what the kernel knows of the path, which the request may say; of
	// that comes at most MaxPeerAckTimeout, or DeviceAttr.AckDelay if that is larger.
	// ErrInvalid outside port space TCP.
	// Implements: rdma_set_option with RDMA_OPTION_ID_ACK_TIMEOUT.
	SetAckTimeout(code uint8) error
	// Listen accepts requests; backlog bounds those not yet answered.
	// Implements: rdma_listen.
	Listen(backlog int) error
	// Device names the device the identifier is bound to; "" before that.
	Device() string
	// CreateQP makes a queue pair that the connection manager moves through
	// its states; it is in INIT afterwards, so that receives can be posted.
	// Implements: rdma_create_qp.
	CreateQP(pd PD, init *QPInitAttr) error
	// QP is the queue pair, nil when there is none.
	QP() QP
	// Connect sends the request. Implements: rdma_connect.
	Connect(p *ConnParam) error
	// Accept answers a CONNECT_REQUEST. Implements: rdma_accept.
	Accept(p *ConnParam) error
	// Reject refuses it. Implements: rdma_reject.
	Reject(private []byte) error
	// Disconnect moves the queue pair to ERR and tells the peer. DISCONNECTED
	// leaves the queue pair as it is, so that acknowledgements on their way still
	// arrive: who takes that event calls Disconnect soon, which also answers a peer
	// that waits for it. Implements: rdma_disconnect.
	Disconnect() error
	// JoinMulticast joins a multicast group; MULTICAST_JOIN brings the way to
	// it, and the queue pair is attached. Implements: rdma_join_multicast.
	JoinMulticast(group netip.Addr, userData uint64) error
	// LeaveMulticast leaves it. Implements: rdma_leave_multicast.
	LeaveMulticast(group netip.Addr) error
	// Migrate moves the identifier's future events to another channel.
	// ErrBusy while events are unacknowledged. Implements: rdma_migrate_id.
	Migrate(to CMChannel) error
	// LocalAddr and PeerAddr are the ends; zero while unknown.
	// Implements: rdma_get_local_addr, rdma_get_peer_addr.
	LocalAddr() netip.AddrPort
	PeerAddr() netip.AddrPort
}
