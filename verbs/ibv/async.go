//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// asyncChannel delivers the asynchronous events of a context, and is a part of it.
type asyncChannel struct {
	ctx *deviceContext
	fd  int // valid after the C context, which closes it, is gone
}

var _ verbs.AsyncChannel = (*asyncChannel)(nil)

// FD polls readable while there are events; see [verbs.Source].
func (a *asyncChannel) FD() int { return a.fd }

// Notify does nothing: the channel has a descriptor.
func (a *asyncChannel) Notify(func()) {}

// Get takes one event. It acknowledges an event of an object that is being closed at once, so
// that the close ends.
//
// Implements: ibv_get_async_event on a non-blocking descriptor.
func (a *asyncChannel) Get() (ev verbs.AsyncEvent, ok bool, err error) {
	const op = "ibv_get_async_event"
	c := a.ctx
	if err := c.keep(op, &c.node); err != nil {
		return ev, false, err
	}
	defer c.release(&c.node)
	for {
		var e C.struct_vb_async_event
		var id C.uint64_t
		switch errno := syscall.Errno(C.shim_get_async_event(c.t, c.c, &e, &id)); errno {
		case 0:
		case syscall.EAGAIN, syscall.EINTR:
			return ev, false, nil
		default:
			return ev, false, c.failed(op, c.label, errno)
		}
		ev = verbs.AsyncEvent{Type: verbs.AsyncEventType(e.event_type)}
		if !ofObject(ev.Type) {
			if ev.Type == verbs.EventDeviceFatal {
				c.saw(sawFatal)
			} else {
				ev.Port = uint8(id)
			}
			C.shim_ack_async(c.t, C.shim_async_element(&e), e.event_type)
			return ev, true, nil
		}
		switch o := c.ids.take(uint64(id)).(type) {
		case *completionQueue:
			ev.CQ = o
		case *queuePair:
			ev.QP = o
		case *sharedReceiveQueue:
			ev.SRQ = o
		default:
			C.shim_ack_async(c.t, C.shim_async_element(&e), e.event_type)
			continue
		}
		n, _ := eventOf(&ev)
		n.async.n.Add(1)
		return ev, true, nil
	}
}

// ofObject reports whether the event concerns an object, not the device or a port. The latter
// need no acknowledgement (ibv_ack_async_event does nothing).
func ofObject(t verbs.AsyncEventType) bool {
	switch t {
	case verbs.EventDeviceFatal, verbs.EventPortActive, verbs.EventPortErr, verbs.EventLIDChange,
		verbs.EventPKeyChange, verbs.EventSMChange, verbs.EventClientReregister, verbs.EventGIDChange,
		verbs.EventDeviceSpeedChange:
		return false
	}
	return t <= verbs.EventWQFatal
}

// eventOf returns the object of the event, and the address of its C object; nil for an event of
// the device or a port.
func eventOf(ev *verbs.AsyncEvent) (n *node, obj uint64) {
	if q, ok := ev.CQ.(*completionQueue); ok && q != nil {
		return &q.node, addr(q.c)
	} else if q, ok := ev.QP.(*queuePair); ok && q != nil {
		return &q.node, addr(q.c)
	} else if s, ok := ev.SRQ.(*sharedReceiveQueue); ok && s != nil {
		return &s.node, addr(s.c)
	}
	return nil, 0
}

// Ack acknowledges an event taken, once. The C library's count changes first, as in AckEvents.
//
// Implements: ibv_ack_async_event.
func (a *asyncChannel) Ack(ev verbs.AsyncEvent) {
	n, obj := eventOf(&ev)
	if n == nil || n.async.claim(1) == 0 {
		return
	}
	C.shim_ack_async(a.ctx.t, C.uint64_t(obj), C.vb_enum(ev.Type))
	n.unacked.Add(-1)
}
