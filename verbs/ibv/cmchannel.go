//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// cmRegistry holds the state of connection management: identifiers by the number in their C
// object, and the counts of the channels' users.
type cmRegistry struct {
	mu sync.Mutex // guards m, and the fields of channels and identifiers marked so
	m  map[uint64]*cmID
}

// cmChannel delivers connection events.
type cmChannel struct {
	p     *Provider
	t     *cmTable
	c     *C.struct_vb_rdma_event_channel
	fd    int // valid after c, which closes it, is gone
	label string

	// taking is held while an event is taken and translated: between the time the library returns
	// a request and the time its identifier gets a number of its own, an event of that identifier
	// would be taken for its listener's. It is taken before an identifier's api, and no C call
	// under it waits.
	taking sync.Mutex

	// Under p.cmIDs.mu: the number of identifiers of this channel and of calls in progress, and
	// whether the channel is closed.
	ids, calls int
	closed     bool
}

var _ verbs.CMChannel = (*cmChannel)(nil)

// CreateCMChannel makes a channel for connection events.
//
// Implements: rdma_create_event_channel.
func (p *Provider) CreateCMChannel() (verbs.CMChannel, error) {
	const op = "rdma_create_event_channel"
	t, err := p.libs.cm()
	if err != nil {
		return nil, err
	}
	c, err := C.shim_create_cm_channel(t)
	if c == nil {
		return nil, noKernel(op, p.Name(), errnoOf(err), syscall.ENODEV, "rdma_ucm")
	}
	if e := syscall.Errno(C.shim_nonblock(c.fd)); e != 0 {
		C.shim_destroy_cm_channel(t, c)
		return nil, failed(op, p.Name(), e)
	}
	p.channels.Add(1)
	live.Add(1)
	return &cmChannel{p: p, t: t, c: c, fd: int(c.fd), label: fmt.Sprintf("CM channel %d", p.numbers.Add(1))}, nil
}

// String names the channel.
func (ch *cmChannel) String() string { return ch.label }

// FD polls readable while there are events; see [verbs.Source].
func (ch *cmChannel) FD() int { return ch.fd }

// Notify does nothing: the channel has a descriptor.
func (ch *cmChannel) Notify(func()) {}

// begin keeps the channel open during a call.
func (ch *cmChannel) begin(op string) error {
	ch.p.cmIDs.mu.Lock()
	defer ch.p.cmIDs.mu.Unlock()
	if ch.closed {
		return opError(op, ch.label, syscall.EBADF, "%w", verbs.ErrClosed)
	}
	ch.calls++
	return nil
}

func (ch *cmChannel) end() {
	ch.p.cmIDs.mu.Lock()
	defer ch.p.cmIDs.mu.Unlock()
	ch.calls--
}

// CreateID makes an identifier whose events are delivered on this channel.
//
// Implements: rdma_create_id.
func (ch *cmChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	return ch.CreateTypedID(ps, ps.QPType(), userData)
}

// CreateTypedID makes an identifier for queue pairs of a type. librdmacm makes one for XRC with rdma_create_ep
// alone, which binds it too, so that waits for Bind or ResolveAddr.
//
// Implements: rdma_create_ep.
func (ch *cmChannel) CreateTypedID(ps verbs.PortSpace, t verbs.QPType, userData uint64) (verbs.CMID, error) {
	const op = "rdma_create_id"
	typed := ps == verbs.PSIB && (t == verbs.QPTXRCSend || t == verbs.QPTXRCRecv)
	if t != ps.QPType() && !typed {
		return nil, opError(op, ch.label, syscall.EINVAL, "%w: queue pairs of type %v in port space 0x%04x", verbs.ErrInvalid, t, uint16(ps))
	}
	if err := ch.begin(op); err != nil {
		return nil, err
	}
	defer ch.end()
	id := newCMID(ch, ps, t, userData)
	if typed {
		return id, nil
	}
	if e := syscall.Errno(C.shim_create_id(ch.t, ch.c, &id.c, C.uint64_t(id.num), C.vb_enum(ps))); e != 0 {
		id.forget()
		return nil, failed(op, ch.label, e)
	}
	return id, nil
}

// GetEvent takes one event. It copies the event and acknowledges it to librdmacm at once. Until
// [cmChannel.Ack] our own count keeps the identifier alive, so that its destruction never waits
// for the user. Events of identifiers that are being closed are dropped.
//
// Implements: rdma_get_cm_event on a non-blocking descriptor, rdma_ack_cm_event.
func (ch *cmChannel) GetEvent() (verbs.CMEvent, bool, error) {
	const op = "rdma_get_cm_event"
	if err := ch.begin(op); err != nil {
		return verbs.CMEvent{}, false, err
	}
	defer ch.end()
	ch.taking.Lock()
	defer ch.taking.Unlock()
	for {
		var e *C.struct_vb_rdma_cm_event
		switch errno := syscall.Errno(C.shim_get_cm_event(ch.t, ch.c, &e)); errno {
		case 0:
		case syscall.EAGAIN, syscall.EINTR:
			return verbs.CMEvent{}, false, nil
		default:
			return verbs.CMEvent{}, false, failed(op, ch.label, errno)
		}
		if ev, ok := ch.translate(e); ok {
			return ev, true, nil
		}
	}
}

// Ack acknowledges an event, once.
//
// Implements: rdma_ack_cm_event; see GetEvent.
func (ch *cmChannel) Ack(ev verbs.CMEvent) {
	ch.p.cmIDs.mu.Lock()
	defer ch.p.cmIDs.mu.Unlock()
	for _, o := range []verbs.CMID{ev.ID, ev.ListenID} {
		if id, ok := o.(*cmID); ok && id != nil {
			id.unacked = max(id.unacked-1, 0) // a second acknowledgement is ignored
		}
	}
}

// Close destroys the channel. It returns [verbs.ErrBusy] while it has identifiers. Idempotent.
//
// Implements: rdma_destroy_event_channel.
func (ch *cmChannel) Close() error {
	ch.p.cmIDs.mu.Lock()
	ids, calls, closed := ch.ids, ch.calls, ch.closed
	if ids+calls == 0 {
		ch.closed = true
	}
	ch.p.cmIDs.mu.Unlock()
	if closed {
		return nil
	}
	if ids+calls > 0 {
		return opError("rdma_destroy_event_channel", ch.label, syscall.EBUSY, "%w: %d identifiers report here, %d calls are under way", verbs.ErrBusy, ids, calls)
	}
	C.shim_destroy_cm_channel(ch.t, ch.c)
	ch.p.channels.Add(-1)
	live.Add(-1)
	return nil
}
