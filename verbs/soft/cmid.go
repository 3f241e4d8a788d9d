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

	// mu guards what turns and calls share.
	mu          sync.Mutex
	ch          *cmChannel
	state       idState
	closed      bool
	dev         *device // nil until bound to one; written under api too, before there is a connection
	local, peer netip.AddrPort
	qp          *queuePair         // written under mu and the token, so that either is enough to read it
	children    map[*cmID]struct{} // of a listener: requests the consumer has not been told of

	// conn and what it is to become belong to the holder of dev's token.
	conn    *cm.Conn
	connect cm.ConnectParam // active: what was asked for
	req     *cm.REQ         // passive: what was asked of us
	psn     uint32          // our first one
}

type listening struct {
	dev *device
	l   *cm.Listener
}

var _ verbs.CMID = (*cmID)(nil)

// newID makes an identifier. It may be called in a turn.
func (p *Provider) newID(ch *cmChannel) *cmID {
	p.cm.ids.Add(1)
	return &cmID{p: p, number: p.cm.numbers.Add(1), ch: ch}
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

// inState checks that the identifier is open and in one of the states. The
// caller holds api.
func (id *cmID) inState(op string, want ...idState) error {
	s, _, closed := id.look()
	if closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
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

// Close destroys the identifier and its queue pair; the peer is told. It
// answers [verbs.ErrBusy] while events of the identifier, or of its queue
// pair, are unacknowledged. Events not yet taken vanish, and with a listener
// the requests that nobody was told of: they are rejected. It waits for a turn
// of the device to end, and must not be called from one. Idempotent.
//
// Implements: rdma_destroy_id.
func (id *cmID) Close() (err error) {
	const op = "rdma_destroy_id"
	id.api.Lock()
	defer id.api.Unlock()
	_, dev, closed := id.look()
	if closed {
		return nil
	}
	var children []*cmID
	shut := func() {
		if n := id.unacked.Load(); n > 0 {
			err = opError(op, id.String(), syscall.EBUSY, "%w: %d events are not acknowledged", verbs.ErrBusy, n)
			return
		}
		if id.qp != nil {
			if err = id.qp.destroy(); err != nil {
				return
			}
			dev.cm.drop(id.qp)
		}
		if children, err = id.leave(op); err != nil {
			return
		}
		if id.conn != nil {
			id.conn.Close(dev.p.Now())
		}
	}
	if dev != nil {
		dev.exclusive(shut)
	} else {
		shut()
	}
	if err != nil {
		return err
	}
	for _, l := range id.listeners {
		l.dev.exclusive(l.l.Close)
	}
	for _, c := range children {
		c.abandon()
	}
	if id.port != 0 {
		id.p.cm.ports.free(id, id.port)
	}
	id.letGo()
	id.p.cm.ids.Add(-1)
	return nil
}

// leave takes the identifier off its channel and marks it closed: no event
// comes from here on. With children the consumer has not been told of.
func (id *cmID) leave(op string) (children []*cmID, err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if _, ok := id.ch.withdraw(id, id.owns); !ok {
		return nil, opError(op, fmt.Sprintf("CM ID %d", id.number), syscall.EBUSY, "%w: an event is not acknowledged", verbs.ErrBusy)
	}
	id.closed = true
	for c := range id.children {
		children = append(children, c)
	}
	id.children = nil
	return children, nil
}

// owns tells whether a queued event goes where the identifier goes: its own,
// and all of the requests that nobody was told of. The caller holds mu.
func (id *cmID) owns(e *cmEvent) bool {
	_, child := id.children[e.id]
	return e.id == id || e.listen == id || child
}

// abandon closes a request that nobody was told of.
func (id *cmID) abandon() {
	id.mu.Lock()
	id.closed = true
	id.mu.Unlock()
	id.dev.exclusive(func() { id.conn.Close(id.dev.p.Now()) })
	id.p.cm.ids.Add(-1)
}

// deliver makes a request the consumer's: it keeps the device on the fabric by
// itself, and no longer goes where the listener goes. The listener has an
// unacknowledged event, so it is alive.
func (id *cmID) deliver(listener *cmID) {
	id.p.opening.Lock()
	id.dev.opens++ // the listener holds it, so it is attached
	id.p.opening.Unlock()
	id.api.Lock()
	id.holds = append(id.holds, id.dev)
	id.api.Unlock()
	listener.mu.Lock()
	delete(listener.children, id)
	listener.mu.Unlock()
}

// Migrate moves the identifier to another channel of the provider, with the
// events not yet taken. [verbs.ErrBusy] while events are unacknowledged. It
// does not block.
//
// Implements: rdma_migrate_id.
func (id *cmID) Migrate(to verbs.CMChannel) error {
	const op = "rdma_migrate_id"
	id.api.Lock()
	defer id.api.Unlock()
	dst, ok := to.(*cmChannel)
	if !ok || dst == nil || dst.p != id.p {
		return id.refuse(op, "%v is not a channel of this provider", to)
	}
	name := id.String()
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return opError(op, name, syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if dst == id.ch {
		return nil
	}
	// Nothing may be queued between taking the events and setting the channel.
	for c := range id.children {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	dst.mu.Lock()
	closed := dst.closed
	if !closed {
		dst.ids++ // so that it cannot be closed
	}
	dst.mu.Unlock()
	if closed {
		return opError(op, name, syscall.EBADF, "%w: %v", verbs.ErrClosed, dst)
	}
	events, ok := id.ch.withdraw(id, id.owns)
	dst.mu.Lock()
	if ok {
		dst.queue = append(dst.queue, events...)
	} else {
		dst.ids--
	}
	dst.mu.Unlock()
	if !ok {
		return opError(op, name, syscall.EBUSY, "%w: events are not acknowledged", verbs.ErrBusy)
	}
	id.ch = dst
	for c := range id.children {
		c.ch = dst
	}
	if len(events) > 0 {
		dst.bell.Signal()
	}
	return nil
}
