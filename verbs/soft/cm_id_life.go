package soft

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close destroys the identifier and its queue pair, and informs the peer. It returns
// [verbs.ErrBusy] while events of the identifier or its queue pair are unacknowledged. It
// discards events not yet taken. On a listener it rejects the requests not yet reported to the
// user. It waits for a running Progress call of the device, and must not be called from one. It
// is idempotent.
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
		id.groups = nil // destroying the queue pair detaches it from them
		if err = id.destroyQP(); err != nil {
			return
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
	if dev != nil {
		dev.cm.bound.drop(id)
	}
	id.p.cm.wild.drop(id)
	for _, l := range id.listeners {
		l.close()
	}
	for _, c := range children {
		c.abandon()
	}
	if id.port != 0 {
		id.ports().free(id, id.port)
	}
	if id.sock != nil {
		id.sock.Close()
	}
	id.releaseAll()
	id.p.cm.ids.Add(-1)
	liveObjects.Add(-1)
	return nil
}

// DestroyQP destroys the queue pair, if there is one. It returns [verbs.ErrBusy] while events of the
// queue pair are unacknowledged. It waits for a running Progress call of the device.
//
// Implements: rdma_destroy_qp.
func (id *cmID) DestroyQP() (err error) {
	id.api.Lock()
	defer id.api.Unlock()
	if id.QP() == nil {
		return nil
	}
	id.dev.exclusive(func() { err = id.destroyQP() })
	return err
}

// destroyQP destroys the queue pair, if there is one. The caller holds api and, if there is a device,
// its token.
func (id *cmID) destroyQP() error {
	if id.qp == nil {
		return nil
	}
	if err := destroyQP(id.qp, id.handle); err != nil {
		return err
	}
	id.dev.cm.drop(id.qp)
	id.mu.Lock()
	defer id.mu.Unlock()
	id.qp, id.handle = nil, nil
	return nil
}

// leave takes the identifier off its channel and marks it closed: no event follows. It returns
// the children not yet reported to the user.
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
	// In order of arrival: a run in virtual time must be repeatable.
	slices.SortFunc(children, func(a, b *cmID) int { return cmp.Compare(a.number, b.number) })
	id.children = nil
	return children, nil
}

// owns reports whether a queued event moves with the identifier: its own events, and those of
// requests not yet reported to the user. The caller holds mu.
func (id *cmID) owns(e *cmEvent) bool {
	_, child := id.children[e.id]
	return e.id == id || e.listen == id || child
}

// abandon closes a request not yet reported to the user.
func (id *cmID) abandon() {
	id.mu.Lock()
	id.closed = true
	id.mu.Unlock()
	id.dev.exclusive(func() { id.conn.Close(id.dev.p.Now()) })
	if id.sock != nil {
		id.sock.Close()
	}
	id.dev.cm.bound.drop(id)
	id.p.cm.ids.Add(-1)
	liveObjects.Add(-1)
}

// deliver hands the identifier of a request to the user: from now on it holds the device itself
// and no longer moves with the listener. The listener has an unacknowledged event, so it is
// alive.
func (id *cmID) deliver(listener *cmID) {
	id.p.opening.Lock()
	id.dev.opens++ // the listener holds the device, so it is attached
	id.p.opening.Unlock()
	id.api.Lock()
	id.holds = append(id.holds, id.dev)
	id.api.Unlock()
	listener.mu.Lock()
	delete(listener.children, id)
	listener.mu.Unlock()
}

// Migrate moves the identifier to another channel of the provider, with the events not yet taken.
// It returns [verbs.ErrBusy] while events are unacknowledged. It does not block.
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
	// No event may be queued between taking the events and setting the channel.
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
		dst.notifier.Signal()
	}
	return nil
}
