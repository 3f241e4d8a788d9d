package verbs

import (
	"net/netip"
	"time"
)

// PortSpace is the port space of a connection identifier.
//
// Implements: enum rdma_port_space.
type PortSpace uint16

// QPType returns the type of the queue pairs of an identifier that CreateID makes in the port space.
//
// Implements: rdma_create_id of librdmacm/cma.c.
func (ps PortSpace) QPType() QPType {
	if ps == PSUDP || ps == PSIPoIB {
		return QPTUD
	}
	return QPTRC
}

// The port spaces.
const (
	PSIPoIB PortSpace = 0x0002
	PSTCP   PortSpace = 0x0106
	PSUDP   PortSpace = 0x0111
	PSIB    PortSpace = 0x013F
)

// Limits of private data, in bytes: the space left in the CM message after the 36 bytes that the
// RDMA CM puts at the start of a REQ.
const (
	MaxPrivateConnect = 56  // Connect, port space TCP
	MaxPrivateAccept  = 196 // Accept
	MaxPrivateReject  = 148 // Reject
	MaxPrivateUDP     = 180 // port space UDP
)

// CMEventType is the kind of a connection event.
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
	RejInvalidServiceID = 8 // no listener has this ID
	RejStaleConn        = 10
	RejConsumer         = 28 // the listener refused; private data may give the reason
	RejVendorOption     = 35 // the listener does not support the offered ECE
)

// ConnParam holds the parameters of a connection that the two sides agree on, and RetryCount,
// which each end sets for itself: Connect sends it to the peer too, and a CONNECT_REQUEST brings
// the peer's value, which is not used.
//
// The C function that accepts a request ignores retry_count.
//
// Implements: struct rdma_conn_param.
type ConnParam struct {
	PrivateData        []byte
	ResponderResources uint8 // READs and atomics served at the same time
	InitiatorDepth     uint8 // READs and atomics outstanding at the same time
	FlowControl        bool
	RetryCount         uint8 // 0 to 7: retries of this end's requests that are not answered
	RNRRetryCount      uint8 // 0 to 7: retries of the peer's requests that find no receive here; 7 means no limit
	SRQ                bool
	QPNum              uint32 // ignored when the identifier has a queue pair
	// HoldResponse is for Connect of an identifier with a queue pair: CONNECT_RESPONSE, and not
	// ESTABLISHED, brings the answer, and Accept then moves the queue pair and establishes. So the
	// steps, which are commands of the device's firmware, need not be taken where events are. A
	// device with DeviceInfo.QuickControl may ignore it.
	HoldResponse bool
}

// DefaultAckTimeout is the ACK timeout code of an end that sets none: 0.54 s. It is what Linux's
// connection manager asks for on RoCE (cma.c, CMA_IBOE_PACKET_LIFETIME, plus one).
const DefaultAckTimeout = 17

// UDPQKey is the queue key of all queue pairs in port space UDP.
//
// Implements: RDMA_UDP_QKEY.
const UDPQKey = 0x01234567

// UDParam is the way to reach a peer in port space UDP, or a multicast group: the attributes of
// an address handle, and the queue pair to send to.
//
// Implements: struct rdma_ud_param.
type UDParam struct {
	PrivateData []byte // valid until Ack
	AH          AHAttr
	QPNum       uint32
	QKey        uint32
}

// CMEvent is one connection event. Conn.PrivateData is valid until Ack and may be longer than the
// data sent, padded with zeros.
//
// Implements: struct rdma_cm_event.
type CMEvent struct {
	Type     CMEventType
	ID       CMID // for CONNECT_REQUEST a new identifier
	ListenID CMID // CONNECT_REQUEST: the listener
	Status   int  // negative errno, or the reason of a REJECTED event
	Conn     ConnParam
	UD       UDParam // port space UDP: CONNECT_REQUEST (private data), ESTABLISHED; MULTICAST_JOIN
	UserData uint64  // MULTICAST_JOIN, MULTICAST_ERROR: the userData of the join
}

// CMChannel delivers connection events.
//
// Implements: struct rdma_event_channel.
type CMChannel interface {
	Object
	Source
	// CreateID makes an identifier whose events are delivered on this channel. Implements:
	// rdma_create_id.
	CreateID(ps PortSpace, userData uint64) (CMID, error)
	// CreateTypedID makes an identifier of port space IB for queue pairs of type RC, XRC_SEND or XRC_RECV, and
	// in other port spaces for those of the type that CreateID chooses: UD in UDP and IPoIB, RC in the others.
	// An XRC_SEND identifier connects to an XRC_RECV listener, and RC to RC. Options of an XRC identifier are set
	// after Bind or ResolveAddr. Implements: rdma_create_ep.
	CreateTypedID(ps PortSpace, t QPType, userData uint64) (CMID, error)
	// GetEvent takes one event; ok is false when there is none. Every event must be acknowledged.
	// Implements: rdma_get_cm_event (non-blocking).
	GetEvent() (ev CMEvent, ok bool, err error)
	// Ack acknowledges an event. Implements: rdma_ack_cm_event.
	Ack(ev CMEvent)
}

// CMID is a connection identifier, the RDMA counterpart of a socket. Calls start work whose
// outcome arrives as an event; none blocks. Close destroys the queue pair of the identifier.
//
//	active:  ResolveAddr ─ ADDR_RESOLVED ─ ResolveRoute ─ ROUTE_RESOLVED ─
//	         CreateQP ─ Connect ─ ESTABLISHED | REJECTED | UNREACHABLE | CONNECT_ERROR
//	passive: Bind ─ Listen ─ CONNECT_REQUEST(new id) ─ CreateQP ─ Accept ─ ESTABLISHED
//	both:    Disconnect ─ DISCONNECTED ─ TIMEWAIT_EXIT
//
// Port space UDP has no connections: Connect asks for the listener's queue pair, ESTABLISHED
// brings it (CMEvent.UD), and Accept is the answer; there is no Disconnect. When the device is
// removed, every identifier bound to it gets DEVICE_REMOVAL and must be closed.
//
// Implements: struct rdma_cm_id.
type CMID interface {
	Object
	// UserData is the value given at creation; the identifier of a CONNECT_REQUEST inherits the
	// listener's. SetUserData replaces it.
	UserData() uint64
	SetUserData(v uint64)
	// Bind sets the local address. With port 0 the provider chooses the port. An unspecified
	// address binds to all devices. Implements: rdma_bind_addr.
	Bind(local netip.AddrPort) error
	// ResolveAddr finds the device that reaches dst and binds to it. src may
	// be the zero value. Implements: rdma_resolve_addr.
	ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute finds the path. Implements: rdma_resolve_route.
	ResolveRoute(timeout time.Duration) error
	// BindIB is Bind to an address of InfiniBand. The port space of its service ID is the identifier's, or TCP or UDP
	// for an identifier of port space IB. LocalAddr and PeerAddr are zero then, and IBAddrs has the addresses.
	// Over libibverbs the device must be of InfiniBand: Linux gives RoCE and iWARP no such addresses (ENODEV). Not
	// proven on a device. Implements: rdma_bind_addr with AF_IB.
	BindIB(local IBAddr) error
	// ResolveIB is ResolveAddr with addresses of InfiniBand; see BindIB. Implements: rdma_resolve_addr with AF_IB.
	ResolveIB(src, dst IBAddr, timeout time.Duration) error
	// SetAckTimeout sets the local ACK timeout of this end of a connection: a code from 1 to 31,
	// as for [AckTimeout]; default DefaultAckTimeout. The step to RTS gives the queue pair the
	// larger of code and DeviceAttr.AckDelay, at both ends and on RoCE and InfiniBand alike. Neither
	// the peer's request nor the path's lifetime has a part in it. iWARP has no such timeout. The
	// connecting end calls it before ResolveRoute: on RoCE its request then carries the value, which
	// other programs use at the accepting end. The accepting end calls it before Accept. ErrInvalid
	// outside port space TCP. Implements: rdma_set_option with RDMA_OPTION_ID_ACK_TIMEOUT.
	SetAckTimeout(code uint8) error
	// SetTOS sets the type of service (IPv4) or traffic class (IPv6) of the packets of a connection: DSCP in the
	// upper 6 bits, ECN in the others. The connecting end calls it before ResolveRoute, later it may have no
	// effect; the request carries the value, and both ends send with it. Of a kernel device, an accepting end
	// that sets it before Accept uses it where the request has none. Default 0. Implements: rdma_set_option
	// with RDMA_OPTION_ID_TOS.
	SetTOS(tos uint8) error
	// SetReuseAddr has Bind share a port with other identifiers that reuse addresses too, as long as none of
	// them listens. Call it before Bind. ErrInvalid on a listener. Implements: rdma_set_option with
	// RDMA_OPTION_ID_REUSEADDR.
	SetReuseAddr(reuse bool) error
	// SetAFOnly restricts a listener at an unspecified address to requests of that address's family, so that one
	// of IPv4 and one of IPv6 can have the same port. Call it before Bind. Default: true for IPv4, and for IPv6
	// what the system says, usually false. ErrInvalid once the identifier listens or has a destination.
	// Implements: rdma_set_option with RDMA_OPTION_ID_AFONLY.
	SetAFOnly(only bool) error
	// Listen accepts requests; backlog bounds the requests not yet answered. Implements:
	// rdma_listen.
	Listen(backlog int) error
	// Device names the device the identifier is bound to; "" before that.
	Device() string
	// CreateQP makes a queue pair that the connection manager moves through its states; it
	// returns in INIT, so that receives can be posted. The type is the identifier's. For XRC_RECV pd is nil
	// and init.XRCD set. Implements: rdma_create_qp, rdma_create_qp_ex.
	CreateQP(pd PD, init *QPInitAttr) error
	// QP is the queue pair of the identifier; nil when there is none.
	QP() QP
	// DestroyQP destroys the queue pair, if there is one; Close does that, too. It does not tell the
	// peer. ErrBusy while events of the queue pair are not acknowledged. Implements: rdma_destroy_qp.
	DestroyQP() error
	// InitQPAttr returns the attributes with which the program moves a queue pair of its own to INIT, RTR
	// or RTS, and their mask; it may change them first. Those of a connection exist from CONNECT_REQUEST or
	// CONNECT_RESPONSE on, and before that those for INIT only. The depths are the offered ones until Accept.
	// ErrInvalid for other states. Implements: rdma_init_qp_attr.
	InitQPAttr(to QPState) (QPAttr, QPAttrMask, error)
	// SetLocalECE sets the options that Connect or Accept sends for a queue pair of the program's own; an
	// answer has the vendor of the request. A queue pair of CreateQP sends its own options, if it has any,
	// and agrees to those of its peer. ErrInvalid when the identifier has a queue pair, outside port space
	// TCP, and for a vendor of 0 or of more than 24 bits; ErrNotSupported before rdma-core 31. Implements:
	// rdma_set_local_ece.
	SetLocalECE(e ECE) error
	// RemoteECE returns the options that CONNECT_REQUEST or CONNECT_RESPONSE brought, which the peer chose
	// freely; zero without any. Errors as SetLocalECE. Implements: rdma_get_remote_ece.
	RemoteECE() (ECE, error)
	// Connect sends the request. Implements: rdma_connect.
	Connect(p *ConnParam) error
	// Accept answers a CONNECT_REQUEST. Implements: rdma_accept.
	Accept(p *ConnParam) error
	// Reject refuses a CONNECT_REQUEST. Implements: rdma_reject.
	Reject(private []byte) error
	// RejectECE is Reject for a request whose options the listener does not support: the peer gets REJECTED
	// with reason RejVendorOption. ErrNotSupported before rdma-core 31. Implements: rdma_reject_ece.
	RejectECE(private []byte) error
	// Notify reports an event of a queue pair of the program's own. COMM_EST, data before the connection is
	// established, establishes an accepted connection whose last message was lost: ESTABLISHED follows. A
	// queue pair of CreateQP may need it too. ErrInvalid for other events and without such a connection, with
	// EISCONN if it is established. Implements: rdma_notify.
	Notify(event AsyncEventType) error
	// Disconnect moves the queue pair to ERR and notifies the peer. A DISCONNECTED event does not
	// change the queue pair, so acknowledgements in the network still arrive. The receiver of
	// that event calls Disconnect soon, which also answers a peer that waits for it. Implements:
	// rdma_disconnect.
	Disconnect() error
	// JoinMulticast joins a multicast group. MULTICAST_JOIN brings the address of the group and
	// userData, and the queue pair is attached to the group. Implements: rdma_join_multicast.
	JoinMulticast(group netip.Addr, userData uint64) error
	// JoinMulticastSendOnly joins a group to send to it: JoinMulticast, but the queue pair is not attached, so
	// datagrams to the group do not arrive. ErrNotSupported before rdma-core 16. Implements:
	// rdma_join_multicast_ex with RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.
	JoinMulticastSendOnly(group netip.Addr, userData uint64) error
	// LeaveMulticast leaves a group. Implements: rdma_leave_multicast.
	LeaveMulticast(group netip.Addr) error
	// JoinMulticastIB is JoinMulticast, or with sendOnly JoinMulticastSendOnly, of a group named by its GID. LeaveMulticastIB
	// leaves it. Not proven on a device; see BindIB. Implements: rdma_join_multicast, rdma_join_multicast_ex,
	// rdma_leave_multicast with AF_IB.
	JoinMulticastIB(group IBAddr, sendOnly bool, userData uint64) error
	LeaveMulticastIB(group IBAddr) error
	// Migrate moves the identifier's future events to another channel.
	// ErrBusy while events are unacknowledged. Implements: rdma_migrate_id.
	Migrate(to CMChannel) error
	// LocalAddr and PeerAddr are the addresses of the two ends; zero while unknown. Implements:
	// rdma_get_local_addr, rdma_get_peer_addr.
	LocalAddr() netip.AddrPort
	PeerAddr() netip.AddrPort
	// Port is the port of the device that the identifier is bound to; 0 while it is bound to none. Implements:
	// struct rdma_cm_id (port_num).
	Port() uint8
	// IBAddrs are the addresses of the two ends of an identifier with addresses of InfiniBand; zero while unknown
	// and for others. Implements: rdma_get_local_addr, rdma_get_peer_addr with AF_IB.
	IBAddrs() (local, peer IBAddr)
}
