package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// ID is a communication identifier, the counterpart of a socket.
//
// An identifier made without an event channel is synchronous: ResolveAddr, ResolveRoute, Connect,
// Accept, Disconnect, JoinMulticast and GetRequest wait for the event that ends them, which Event
// returns. Other identifiers report to their channel, and the calls return at once.
//
// Methods may be called from any goroutine, but the calls that connect an identifier come one after
// another. Destroy may be called beside any of them, which then returns verbs.ErrClosed or another error.
// Those that wait have a context; if it ends, the identifier can only be destroyed, except that after
// JoinMulticast it can join and leave groups.
//
// Implements: struct rdma_cm_id.
type ID struct {
	// Context is the program's. The identifier of a CONNECT_REQUEST inherits the listener's. The
	// package does not use it.
	Context any

	lib    *Library
	cm     verbs.CMID
	ps     verbs.PortSpace
	typ    verbs.QPType // of its queue pairs
	number uint64       // in Library.ids

	unacked unacked
	// taking counts the calls of GetRequest whose new identifier still reports to the channel of this one, which
	// Destroy and MigrateID destroy if it is the identifier's own. They wait for no program.
	taking unacked

	// life serializes the calls that make and destroy the identifier, its queue pair and its shared receive
	// queue, and move it to another channel. It is locked before EventChannel.mu and mu.
	life sync.Mutex

	mu    sync.Mutex // guards the fields below; EventChannel.mu is locked before it
	ch    *EventChannel
	sync  bool       // ch belongs to the identifier, whose calls wait for their events
	event *Event     // the last event of a synchronous identifier
	joins joins      // the groups that the identifier has joined or is joining
	infos []AddrInfo // the results of ResolveAddrInfo

	// Of an endpoint, written before the program has it: the queue pair that GetRequest makes, and the
	// private data of a Connect without parameters.
	makeQP *QPInitAttr
	makePD verbs.PD
	data   []byte

	// qp is nil while there is no queue pair. CreateQP and DestroyQP write it; each call that posts
	// reads it. It publishes the queue pair.
	qp  atomic.Pointer[queuePair]
	srq atomic.Pointer[SRQ] // as qp, for CreateSRQ
}

// CreateID makes an identifier that reports to ch, or a synchronous one if ch is nil. The argument
// userContext becomes ID.Context. The caller destroys it. It does not block.
//
// Implements: rdma_create_id.
func (l *Library) CreateID(ch *EventChannel, userContext any, ps verbs.PortSpace) (*ID, error) {
	return l.createID("rdma_create_id", ch, userContext, ps, ps.QPType())
}

// createID is CreateID for queue pairs of a type; 0: by the port space.
func (l *Library) createID(op string, ch *EventChannel, userContext any, ps verbs.PortSpace, t verbs.QPType) (*ID, error) {
	if t == 0 {
		t = ps.QPType()
	}
	id := &ID{Context: userContext, lib: l, ps: ps, typ: t, ch: ch, sync: ch == nil}
	if id.sync {
		var err error
		if id.ch, err = l.CreateEventChannel(); err != nil {
			return nil, named(op, nil, err)
		}
	}
	err := id.ch.join() // first, so that the channel lives as long as the identifier
	if err == nil {
		var number uint64
		if number, err = l.adopt(id); err == nil {
			if id.cm, err = id.ch.cm.CreateTypedID(ps, t, number); err != nil {
				l.forget(id)
			}
		}
		if err != nil {
			id.ch.leave(id)
		}
	}
	if err != nil {
		if id.sync {
			err = errors.Join(err, id.ch.Destroy())
		}
		return nil, named(op, nil, err)
	}
	return id, nil
}

// child makes the identifier of a CONNECT_REQUEST of the listener id, which reports to ch. The caller
// holds ch.mu.
func (id *ID) child(cm verbs.CMID, ch *EventChannel) (*ID, error) {
	c := &ID{Context: id.Context, lib: id.lib, cm: cm, ps: id.ps, typ: id.typ, ch: ch}
	number, err := id.lib.adopt(c)
	if err != nil {
		return nil, err
	}
	cm.SetUserData(number)
	ch.ids++
	return c, nil
}

// Destroy destroys the queue pair, if there is one, and the identifier. It waits until all events of
// the identifier are acknowledged, or ctx ends; then nothing is destroyed. On a device of the system it is
// verbs.ErrBusy while another call uses the queue pair, and can be repeated. Destroy is idempotent.
//
// Implements: rdma_destroy_id, rdma_destroy_ep.
func (id *ID) Destroy(ctx context.Context) error {
	if id == nil {
		return errNil("rdma_destroy_id")
	}
	if ctx == nil {
		return ErrNilContext
	}
	if id.lib.id(id.number) != id {
		return nil
	}
	if err := id.unacked.wait(ctx); err != nil {
		return fmt.Errorf("destroying %v: waiting until its events are acknowledged: %w", id, err)
	}
	id.life.Lock()
	defer id.life.Unlock()
	if id.lib.id(id.number) != id { // another goroutine was faster
		return nil
	}
	if err := errors.Join(id.destroyQP(), id.destroySRQ()); err != nil {
		return err
	}
	ch := id.channel()
	if err := ch.between(id.cm.Close); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		return named("rdma_destroy_id", id, err)
	}
	id.lib.forget(id)
	_ = id.unacked.wait(ctx) // for an event that was taken meanwhile; there are no more now
	ch.leave(id)
	if id.Channel() == nil {
		_ = id.taking.wait(background)
		return ch.Destroy()
	}
	return nil
}

// MigrateID moves the identifier's events to another channel. With nil the identifier becomes
// synchronous. It waits until all events of the identifier are acknowledged, or ctx ends.
//
// Implements: rdma_migrate_id.
func (id *ID) MigrateID(ctx context.Context, to *EventChannel) error {
	if id == nil {
		return errNil("rdma_migrate_id")
	}
	const op = "rdma_migrate_id"
	if ctx == nil {
		return ErrNilContext
	}
	if err := id.unacked.wait(ctx); err != nil {
		return fmt.Errorf("%s of %v: waiting until its events are acknowledged: %w", op, id, err)
	}
	id.life.Lock()
	defer id.life.Unlock()
	own := to == nil
	if own {
		var err error
		if to, err = id.lib.CreateEventChannel(); err != nil {
			return named(op, id, err)
		}
	}
	from := id.channel()
	err := to.join()
	if err == nil {
		if err = from.between(func() error { return id.cm.Migrate(to.cm) }); err != nil {
			to.leave(id)
		}
	}
	if err != nil {
		if own {
			err = errors.Join(err, to.Destroy())
		}
		return named(op, id, err)
	}
	from.mu.Lock()
	id.mu.Lock()
	wasOwn := id.sync
	id.ch, id.sync = to, own
	id.mu.Unlock()
	waiting := from.leaveLocked(id)
	from.mu.Unlock()
	to.put(waiting)
	if wasOwn {
		_ = id.taking.wait(background)
		return from.Destroy()
	}
	return nil
}

// String names the identifier and its addresses.
func (id *ID) String() string { return id.cm.String() }

// PS returns the port space.
func (id *ID) PS() verbs.PortSpace { return id.ps }

// QPType returns the type of the identifier's queue pairs: that of the AddrInfo of an endpoint, and otherwise
// UD in port spaces UDP and IPoIB, and RC in others. The identifier of a CONNECT_REQUEST has the listener's.
//
// Implements: the member qp_type of struct rdma_cm_id.
func (id *ID) QPType() verbs.QPType { return id.typ }

// Channel returns the channel that the identifier reports to; nil if the identifier is synchronous.
func (id *ID) Channel() *EventChannel {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.sync {
		return nil
	}
	return id.ch
}

// channel returns the channel that has the identifier's events.
func (id *ID) channel() *EventChannel {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ch
}

// Event returns the event that ended the last call of a synchronous identifier; nil if there is none.
// It is acknowledged already.
//
// Implements: the member event of struct rdma_cm_id.
func (id *ID) Event() *Event {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.event
}

// Device returns the device that the identifier is bound to; nil before that.
//
// Implements: the member verbs of struct rdma_cm_id.
func (id *ID) Device() (*Device, error) {
	if id == nil {
		return nil, errNil("ID.Device")
	}
	name := id.cm.Device()
	if name == "" {
		return nil, nil
	}
	return id.lib.device(name)
}

// bound is Device that fails if there is none.
func (id *ID) bound(op string) (*Device, error) {
	dev, err := id.Device()
	if err == nil && dev == nil {
		return nil, failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the identifier is not bound to a device", verbs.ErrInvalid))
	}
	return dev, named(op, id, err)
}

// LocalAddr and PeerAddr return the addresses of the two ends; zero while unknown.
//
// Implements: rdma_get_local_addr, rdma_get_src_port.
func (id *ID) LocalAddr() netip.AddrPort { return id.cm.LocalAddr() }

// PeerAddr returns the address of the peer; zero while unknown.
//
// Implements: rdma_get_peer_addr, rdma_get_dst_port.
func (id *ID) PeerAddr() netip.AddrPort { return id.cm.PeerAddr() }

// Port returns the port of the device that the identifier is bound to; 0 while it is bound to none.
//
// Implements: struct rdma_cm_id (port_num).
func (id *ID) Port() uint8 { return id.cm.Port() }

// SetTOS sets the type of service of the packets. Call it before ResolveRoute.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_TOS.
func (id *ID) SetTOS(tos uint8) error {
	if id == nil {
		return errNil("rdma_set_option")
	}
	return id.cm.SetTOS(tos)
}

// SetAckTimeout sets the local ACK timeout: 4.096 µs × 2^code. Call it before ResolveRoute or Accept.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_ACK_TIMEOUT.
func (id *ID) SetAckTimeout(code uint8) error {
	if id == nil {
		return errNil("rdma_set_option")
	}
	return id.cm.SetAckTimeout(code)
}

// BindAddr binds the identifier to a local address. Port 0 chooses a port. With an unspecified address
// it is bound to all devices.
//
// Implements: rdma_bind_addr.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	if id == nil {
		return errNil("rdma_bind_addr")
	}
	return id.cm.Bind(addr)
}

// ResolveAddr finds the device that reaches dst and binds the identifier to it. The argument src may be
// zero. Event ADDR_RESOLVED or ADDR_ERROR follows.
//
// Implements: rdma_resolve_addr.
func (id *ID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	if id == nil {
		return errNil("rdma_resolve_addr")
	}
	return id.await(ctx, "rdma_resolve_addr", func() error { return id.cm.ResolveAddr(src, dst, timeout) }, verbs.CMAddrResolved)
}

// ResolveRoute finds the path to the peer. Event ROUTE_RESOLVED or ROUTE_ERROR follows.
//
// Implements: rdma_resolve_route.
func (id *ID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	if id == nil {
		return errNil("rdma_resolve_route")
	}
	return id.await(ctx, "rdma_resolve_route", func() error { return id.cm.ResolveRoute(timeout) }, verbs.CMRouteResolved)
}

// await makes a call that begins something. If the identifier is synchronous, it waits for the event
// that ends it, whose type should be want.
//
// Implements: ucma_complete of librdmacm.
func (id *ID) await(ctx context.Context, op string, call func() error, want verbs.CMEventType) error {
	return id.awaitOwn(ctx, op, call, want, 0)
}

// awaitOwn is await for the join with that number; 0: for another call. It passes over the events of other joins, whose
// contexts have ended.
func (id *ID) awaitOwn(ctx context.Context, op string, call func() error, want verbs.CMEventType, join uint64) error {
	if ctx == nil {
		return ErrNilContext
	}
	if err := call(); err != nil {
		return named(op, id, err)
	}
	if id.Channel() != nil {
		return nil
	}
	ev, err := id.next(ctx)
	for err == nil && (ev.Type == verbs.CMMulticastJoin || ev.Type == verbs.CMMulticastError) && ev.join != join {
		ev, err = id.next(ctx)
	}
	if err != nil {
		return named(op, id, err)
	}
	if err := ev.Err(); err != nil {
		return err
	}
	if ev.Type != want && !(want == verbs.CMEstablished && ev.Type == verbs.CMConnectResponse) { // the program has a queue pair of its own
		return failure(op, id, syscall.ECONNABORTED, fmt.Errorf("%w: event %v instead of %v", verbs.ErrInvalid, ev.Type, want))
	}
	return nil
}

// next takes the next event of a synchronous identifier. It acknowledges it at once: private data is a
// copy, and a Destroy beside the call would otherwise wait for an acknowledgement that only it could make.
func (id *ID) next(ctx context.Context) (*Event, error) {
	ev, err := id.channel().GetEvent(ctx)
	if err != nil {
		return nil, err
	}
	ev.Ack()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.event = ev
	return ev, nil
}
