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
)

// idState is where an identifier stands.
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
// An identifier that ended cannot be used again, only closed.
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

// String is the name of the state in the drawing.
func (s idState) String() string { return idStateNames[s] }

// cmID is a connection identifier. Locks are drawn at [cmChannel].
type cmID struct {
	p        *Provider
	ps       verbs.PortSpace
	number   uint64
	userData atomic.Uint64
	// unacked is events taken and not acknowledged. Added to under the
	// channel's mu, where Close and Migrate look at it; Ack subtracts at any
	// time.
	unacked atomic.Int64

	// api makes calls of the consumer wait for each other. It guards:
	api       sync.Mutex
	holds     []*device // kept on the fabric for us
	port      uint16    // that we hold; 0: none
	listeners []listening
	backlog   int
	timeout   uint8 // code that SetAckTimeout set; 0: none

	// mu guards what turns and calls share.
	mu          sync.Mutex
	ch          *cmChannel
	state       idState
	closed      bool
	told        bool    // of the device's removal
	dev         *device // nil until bound to one; written under api too, before there is a connection
	local, peer netip.AddrPort
	qp          *queuePair         // written under mu and the token, so that either is enough to read it
	children    map[*cmID]struct{} // of a listener: requests the consumer has not been told of

	// conn and what it is to become belong to the holder of dev's token.
	conn    *cm.Conn
	connect cm.ConnectParam // active: what was asked for
	req     *cm.REQ         // passive: what was asked of us
	psn     uint32          // our first one
	groups  []verbs.GID     // joined; one entry for each time
}

type listening struct {
	dev *device
	l   *cm.Listener
}

var _ verbs.CMID = (*cmID)(nil)

// newID makes an identifier. It may be called in a turn.
func (p *Provider) newID(ch *cmChannel, ps verbs.PortSpace) *cmID {
	p.cm.ids.Add(1)
	liveObjects.Add(1)
	return &cmID{p: p, ps: ps, number: p.cm.numbers.Add(1), ch: ch}
}

// String names the identifier by its number and ends.
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

// UserData is the value given at creation or by SetUserData.
func (id *cmID) UserData() uint64 { return id.userData.Load() }

// SetUserData replaces the consumer's value. Any goroutine.
func (id *cmID) SetUserData(v uint64) { id.userData.Store(v) }

// Device names the device the identifier is bound to; "" before that, and for
// a listener on all devices.
func (id *cmID) Device() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == nil {
		return ""
	}
	return id.dev.cfg.Name
}

// QP is the queue pair made by CreateQP, nil when there is none.
func (id *cmID) QP() verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == nil {
		return nil
	}
	return id.qp
}

// LocalAddr is this end; zero while unknown.
//
// Implements: rdma_get_local_addr.
func (id *cmID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

// PeerAddr is the other end; zero while unknown. The address is the one that
// packets come from, the port what the peer says.
//
// Implements: rdma_get_peer_addr.
func (id *cmID) PeerAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.peer
}

// look reads the state.
func (id *cmID) look() (s idState, dev *device, closed bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.state, id.dev, id.closed
}

// become sets the state. Not on an identifier that ended.
func (id *cmID) become(s idState) {
	id.mu.Lock()
	id.state = s
	id.mu.Unlock()
}

// refuse is a call that cannot be done.
func (id *cmID) refuse(op string, format string, a ...any) error {
	return opError(op, id.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
}

// inState checks that the identifier is open, has its device, and is in one of the states. The
// caller holds api.
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

// exclusive runs fn with the engine of the identifier's device at rest, in one
// of the states. The caller holds api.
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
		// The state may change in any turn, so it is looked at here.
		if err = id.inState(op, want...); err == nil {
			if err = fn(dev.p.Now()); err != nil {
				err = opError(op, id.String(), syscall.EINVAL, "%w", err)
			}
		}
	})
	return err
}
