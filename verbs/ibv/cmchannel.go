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

// cmRegistry is the book-keeping of connection management: identifiers by the
// number that stands in their C object, and who needs what.
type cmRegistry struct {
	mu sync.Mutex // guards m, and the fields of channels and identifiers that say so
	m  map[uint64]*cmID
}

// cmChannel delivers connection events.
type cmChannel struct {
	p     *Provider
	t     *cmTable
	c     *C.struct_vb_rdma_event_channel
	fd    int // outlives c, in which it is closed
	label string

	// taking has events taken one at a time, until they are told: between the
	// library's giving out a request and its identifier's getting a number of its
	// own, an event of the latter would be taken for its listener's. It comes
	// before an identifier's api, and no call of C under it waits.
	taking sync.Mutex

	// Under p.cmIDs.mu: identifiers that report here, calls under way, and
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

// begin keeps the channel open for a call.
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

// CreateID makes an identifier that reports here.
//
// Implements: rdma_create_id.
func (ch *cmChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	const op = "rdma_create_id"
	if err := ch.begin(op); err != nil {
		return nil, err
	}
	defer ch.end()
	id := newCMID(ch, ps, userData)
	if e := syscall.Errno(C.shim_create_id(ch.t, ch.c, &id.c, C.uint64_t(id.num), C.vb_enum(ps))); e != 0 {
		id.forget()
		return nil, failed(op, ch.label, e)
	}
	return id, nil
}

// GetEvent takes one event. It is copied and acknowledged to librdmacm at once;
// until [cmChannel.Ack] the identifier is kept by our own count, so that its
// destruction never waits for a consumer. Events of identifiers that are being
// closed are dropped.
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
			id.unacked = max(id.unacked-1, 0) // a second one is passed over
		}
	}
}

// Close destroys the channel. It answers [verbs.ErrBusy] while identifiers
// report here. Idempotent.
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
