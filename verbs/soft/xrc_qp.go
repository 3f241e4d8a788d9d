package soft

import (
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// xrcReceiver is a handle on an XRC_RECV queue pair; the engine's part is a queuePair that
// belongs to the domain. The queue pair lives until its last handle is closed, and every handle
// gets its events.
//
// Implements: the shared queue pairs of the kernel's verbs.c (ib_open_qp,
// __ib_shared_qp_event_handler).
type xrcReceiver struct {
	x        *xrcd
	q        *queuePair
	userData uint64
	events   asyncState
	closed   bool // under the port's token
}

var _ verbs.QP = (*xrcReceiver)(nil)

// CreateQP makes an XRC_RECV queue pair in RESET.
//
// Implements: ibv_create_qp_ex with IBV_QP_INIT_ATTR_XRCD.
func (x *xrcd) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	const op = "ibv_create_qp"
	if init.Type != verbs.QPTXRCRecv {
		return nil, opError(op, x.String(), syscall.EINVAL, "%w: a queue pair of type %v", verbs.ErrInvalid, init.Type)
	}
	q := &queuePair{dev: x.ctx.dev, kind: init.Type, service: services[init.Type], xrc: x.dom}
	r := &xrcReceiver{x: x, q: q, userData: init.UserData}
	if err := x.exclusive(op, func() error {
		if err := q.dev.addQP(q); err != nil {
			return opError(op, x.String(), syscall.ENOMEM, "%w", err)
		}
		q.reset(&q.granted)
		r.join()
		return nil
	}); err != nil {
		return nil, err
	}
	init.Cap = verbs.QPCap{}
	return r, nil
}

// OpenQP makes another handle on an XRC_RECV queue pair of the domain.
//
// Implements: ibv_open_qp.
func (x *xrcd) OpenQP(num uint32, userData uint64) (verbs.QP, error) {
	const op = "ibv_open_qp"
	r := &xrcReceiver{x: x, userData: userData}
	if err := x.exclusive(op, func() error {
		if r.q = x.ctx.dev.find(num & max24); r.q == nil || r.q.number != num || r.q.xrc != x.dom {
			return opError(op, x.String(), syscall.EINVAL, "%w: the domain has no queue pair 0x%06x", verbs.ErrInvalid, num)
		}
		r.join()
		return nil
	}); err != nil {
		return nil, err
	}
	return r, nil
}

// exclusive runs fn with the port's token, on an open handle.
func (x *xrcd) exclusive(op string, fn func() error) (err error) {
	if e := x.ctx.exclusive(op, func() {
		if x.closed {
			err = opError(op, x.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
			return
		}
		err = fn()
	}); e != nil {
		return e
	}
	return err
}

// join registers the handle. The caller holds the token.
func (r *xrcReceiver) join() {
	r.q.handles = append(r.q.handles, r)
	r.x.qps++
	r.x.ctx.counts.QP++
}

// exclusive runs fn with the port's token, on an open handle.
func (r *xrcReceiver) exclusive(op string, fn func() error) error {
	return r.x.exclusive(op, func() error {
		if r.closed {
			return opError(op, r.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
		}
		return fn()
	})
}

// Modify changes the state or attributes of the queue pair, for all handles; see
// [queuePair.Modify].
//
// Implements: ibv_modify_qp.
func (r *xrcReceiver) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	return r.exclusive("ibv_modify_qp", func() error { return r.q.modify(attr, mask) })
}

// Query returns all attributes.
//
// Implements: ibv_query_qp.
func (r *xrcReceiver) Query() (a verbs.QPAttr, err error) {
	err = r.exclusive("ibv_query_qp", func() error {
		a = r.q.attributes()
		return nil
	})
	return a, err
}

// Close closes the handle, and with the last handle the queue pair. It returns [verbs.ErrBusy]
// while events taken through it are unacknowledged.
//
// Implements: ibv_destroy_qp.
func (r *xrcReceiver) Close() (err error) {
	if e := r.x.ctx.closing("ibv_destroy_qp", func() { err = r.destroy() }); e != nil && !r.x.ctx.closed.Load() {
		return e
	}
	return err
}

// destroy is Close. The caller holds the token.
func (r *xrcReceiver) destroy() error {
	if r.closed {
		return nil
	}
	if n := r.x.ctx.async.end(&r.events); n > 0 {
		return opError("ibv_destroy_qp", r.String(), syscall.EBUSY, "%w: %d events are not acknowledged", verbs.ErrBusy, n)
	}
	r.closed = true
	r.x.qps--
	r.x.ctx.counts.QP--
	q := r.q
	if q.handles = slices.DeleteFunc(q.handles, func(o *xrcReceiver) bool { return o == r }); len(q.handles) == 0 {
		q.reset(&q.granted)
		q.dev.removeQP(q)
	}
	return nil
}

// InitAttr returns the attributes of the handle's creation. It does not block.
func (r *xrcReceiver) InitAttr() verbs.QPInitAttr {
	return verbs.QPInitAttr{Type: verbs.QPTXRCRecv, UserData: r.userData}
}

// AttachMcast returns an error: only datagram queue pairs can be attached.
//
// Implements: ibv_attach_mcast.
func (r *xrcReceiver) AttachMcast(verbs.GID, uint16) error {
	return opError("ibv_attach_mcast", r.String(), syscall.EINVAL, "%w: not a queue pair of datagrams", verbs.ErrInvalid)
}

// DetachMcast returns an error, as AttachMcast does.
//
// Implements: ibv_detach_mcast.
func (r *xrcReceiver) DetachMcast(verbs.GID, uint16) error {
	return opError("ibv_detach_mcast", r.String(), syscall.EINVAL, "%w: not a queue pair of datagrams", verbs.ErrInvalid)
}

// Context returns the context of its domain's handle.
func (r *xrcReceiver) Context() verbs.Context { return r.x.ctx }

// Num returns the queue pair number.
func (r *xrcReceiver) Num() uint32 { return r.q.number }

// Type returns XRC_RECV.
func (r *xrcReceiver) Type() verbs.QPType { return verbs.QPTXRCRecv }

// UserData returns the value given to the handle.
func (r *xrcReceiver) UserData() uint64 { return r.userData }

// String returns the queue pair's name.
func (r *xrcReceiver) String() string { return r.q.String() }
