package soft

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// idState is the state of an identifier.
//
//	idle ── Bind ── bound ── Listen ── listening
//	  │               │
//	  └─ ResolveAddr ─┴─ addrResolved ── ResolveRoute ── routeResolved
//	                                                          │ Connect
//	                                                          v
//	     CONNECT_RESPONSE (no queue pair): replied <────── connecting
//	                                          │ Accept        │ ESTABLISHED
//	                                          v               v
//	asked ── Accept ── accepted ── ESTABLISHED ────────> established
//	  │ Reject             │                                  │ Disconnect, DISCONNECTED
//	  v                    v                                  v
//	ended <── REJECTED, UNREACHABLE, CONNECT_ERROR ────────> ended
//
// An identifier that has ended can only be closed.
//
// Implements: enum rdma_cm_state (kernel drivers/infiniband/core/cma_priv.h).
type idState uint8

const (
	idIdle idState = iota
	idBound
	idListening
	idAddrResolved
	idRouteResolved
	idConnecting
	idReplied
	idAsked
	idAccepted
	idEstablished
	idEnded
)

var idStateNames = [...]string{
	"idle", "bound", "listening", "address resolved", "route resolved", "connecting", "replied",
	"asked", "accepted", "established", "ended",
}

// String returns the state's name.
func (s idState) String() string { return idStateNames[s] }

// cmID is a connection identifier. See [cmChannel] for the lock order.
type cmID struct {
	p        *Provider
	ps       verbs.PortSpace // with an address of InfiniBand that of its service ID
	kind     verbs.QPType    // of its queue pairs
	number   uint64
	userData atomic.Uint64
	// unacked counts events taken and not acknowledged. It is raised under the channel's mu,
	// where Close and Migrate read it; Ack lowers it at any time.
	unacked atomic.Int64

	// api serializes the user's calls. It guards:
	api       sync.Mutex
	holds     []*device // devices kept on the fabric for this identifier
	port      uint16    // the port it holds; 0: none
	listeners []listening
	backlog   int
	timeout   uint8     // code set by SetAckTimeout; 0: none
	tos       uint8     // set by SetTOS
	ece       verbs.ECE // set by SetLocalECE
	reuse     bool      // set by SetReuseAddr; ends when it listens
	family    family    // set by SetAFOnly
	only      uint8     // the IP version that it is restricted to since Bind; 0: none
	ib        bool      // it has addresses of InfiniBand; as ps, written before it listens or connects
	sock      *roce.End // the socket that it holds; nil: none

	// mu guards the state shared by Progress and calls.
	mu              sync.Mutex
	ch              *cmChannel
	state           idState
	closed          bool
	removalReported bool    // DEVICE_REMOVAL is queued
	dev             *device // nil until bound to one; written under api too, before there is a connection
	local, peer     netip.AddrPort
	localIB, peerIB verbs.IBAddr // with ib: what local and peer do not have
	peerECE         verbs.ECE
	path            wire.Path          // to the peer; written when the address is resolved, or the request received
	mtu             verbs.MTU          // the largest of that path; written when the address is resolved
	qp              *queuePair         // written under mu and the token, so that either suffices to read it
	handle          *xrcReceiver       // of an XRC_RECV queue pair; as qp
	children        map[*cmID]struct{} // a listener's requests not yet reported to the user

	// The connection and its parameters belong to the holder of dev's token.
	conn    *cm.Conn
	connect cm.ConnectParam // active side: the request sent
	req     *cm.REQ         // passive side: the request received
	agreed  peerEnd         // from a request or an answer
	psn     uint32          // the first PSN that this side receives; 0: not drawn
	groups  []membership    // in the order of the joins
}

type listening struct {
	dev      *device
	l        *cm.Listener
	withdraw func() // undoes the announcement at the fabric
}

// close ends listening.
func (l *listening) close() {
	l.dev.exclusive(l.l.Close)
	l.withdraw()
}

var _ verbs.CMID = (*cmID)(nil)

// newID makes an identifier. It may be called during Progress.
func (p *Provider) newID(ch *cmChannel, ps verbs.PortSpace, kind verbs.QPType) *cmID {
	p.cm.ids.Add(1)
	liveObjects.Add(1)
	return &cmID{p: p, ps: ps, kind: kind, number: p.cm.numbers.Add(1), ch: ch}
}

// String returns the identifier's number, device and addresses.
func (id *cmID) String() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	s := fmt.Sprintf("CM ID %d", id.number)
	if id.dev != nil {
		s += " of " + id.dev.cfg.Name
	}
	if id.local.Port() != 0 {
		s += fmt.Sprintf(" at %v", id.local)
	}
	if id.peer.IsValid() {
		s += fmt.Sprintf(" with %v", id.peer)
	}
	return s
}

// UserData returns the value given at creation or by SetUserData.
func (id *cmID) UserData() uint64 { return id.userData.Load() }

// SetUserData replaces the user's value. Any goroutine may call it.
func (id *cmID) SetUserData(v uint64) { id.userData.Store(v) }

// Device returns the name of the device the identifier is bound to. It is "" before that, and for
// a listener on all devices.
func (id *cmID) Device() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == nil {
		return ""
	}
	return id.dev.cfg.Name
}

// Port is 1: the devices have one port.
//
// Implements: struct rdma_cm_id (port_num).
func (id *cmID) Port() uint8 {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == nil {
		return 0
	}
	return 1
}

// QP returns the queue pair made by CreateQP, nil when there is none.
func (id *cmID) QP() verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.handle != nil:
		return id.handle
	case id.qp != nil:
		return id.qp
	}
	return nil
}

// LocalAddr returns the local address; zero while unknown.
//
// Implements: rdma_get_local_addr.
func (id *cmID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.ib {
		return netip.AddrPort{}
	}
	return id.local
}

// localAddr returns the local address, of InfiniBand too.
func (id *cmID) localAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

// PeerAddr returns the peer's address; zero while unknown. The IP address is the packets' source,
// the port is the one the peer reports.
//
// Implements: rdma_get_peer_addr.
func (id *cmID) PeerAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.ib {
		return netip.AddrPort{}
	}
	return id.peer
}

// look returns the state, the device and whether the identifier is closed.
func (id *cmID) look() (s idState, dev *device, closed bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.state, id.dev, id.closed
}

// become sets the state. Do not call it on an identifier that has ended.
func (id *cmID) become(s idState) {
	id.mu.Lock()
	id.state = s
	id.mu.Unlock()
}

// refuse returns an EINVAL error for a call.
func (id *cmID) refuse(op string, format string, a ...any) error {
	return opError(op, id.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
}

// inState checks that the identifier is open, its device is present, and its state is one of
// want. The caller holds api.
func (id *cmID) inState(op string, want ...idState) error {
	s, dev, closed := id.look()
	if closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if dev != nil && dev.removed.Load() {
		return removedError(op, id.String())
	}
	for _, w := range want {
		if s == w {
			return nil
		}
	}
	return id.refuse(op, "the identifier is in state %v", s)
}

// exclusive runs fn with the token of the identifier's device, if the state is one of want. The
// caller holds api.
func (id *cmID) exclusive(op string, want []idState, fn func(now time.Duration) error) error {
	_, dev, closed := id.look()
	if closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if dev == nil {
		return id.refuse(op, "the identifier is not bound to a device")
	}
	var err error
	dev.exclusive(func() {
		// Progress may change the state at any time, so it is checked with the token held.
		if err = id.inState(op, want...); err == nil {
			if err = fn(dev.p.Now()); err != nil {
				err = opError(op, id.String(), syscall.EINVAL, "%w", err)
			}
		}
	})
	return err
}
