package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// hold keeps a device on the fabric until releaseAll. The caller holds api.
func (id *cmID) hold(d *device) error {
	id.p.opening.Lock()
	defer id.p.opening.Unlock()
	if d.removed.Load() { // since it was found
		return withErrno(syscall.ENODEV, "%w: %s", verbs.ErrDeviceRemoved, d.cfg.Name)
	}
	if d.opens == 0 {
		if err := d.attach(); err != nil {
			return withErrno(syscall.EADDRINUSE, "%w", err)
		}
	}
	d.opens++
	id.holds = append(id.holds, d)
	return nil
}

// releaseAll undoes all holds.
func (id *cmID) releaseAll() {
	id.p.opening.Lock()
	defer id.p.opening.Unlock()
	for _, d := range id.holds {
		if d.opens--; d.opens == 0 {
			d.detach()
		}
	}
	id.holds = nil
}

// release undoes one hold of d. The caller holds api.
func (id *cmID) release(d *device) {
	id.p.opening.Lock()
	defer id.p.opening.Unlock()
	if i := slices.Index(id.holds, d); i >= 0 {
		id.holds = slices.Delete(id.holds, i, i+1)
		if d.opens--; d.opens == 0 {
			d.detach()
		}
	}
}

// errnoError is a cause with its errno.
type errnoError struct {
	error
	errno syscall.Errno
}

func (e *errnoError) Unwrap() error { return e.error }

func withErrno(errno syscall.Errno, format string, a ...any) error {
	return &errnoError{fmt.Errorf(format, a...), errno}
}

// failed wraps err for the caller, with its errno.
func (id *cmID) failed(op string, err error) error {
	errno := syscall.EINVAL
	if e := (*errnoError)(nil); errors.As(err, &e) {
		err, errno = e.error, e.errno
	}
	return opError(op, id.String(), errno, "%w", err)
}

// anywhere reports whether an address names no device.
func anywhere(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }

// Bind binds the identifier to a local address: that of a device, or an unspecified one for all
// devices of the provider. Port 0 selects a free port from 32768 to 60999. Errors: ENODEV with
// [verbs.ErrUnknownDevice] when no device has the address, EADDRINUSE when the port is held (see
// SetReuseAddr and SetAFOnly). It does not block, except while the first user of a device attaches it to the fabric.
//
// Implements: rdma_bind_addr.
func (id *cmID) Bind(local netip.AddrPort) error {
	const op = "rdma_bind_addr"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idIdle); err != nil {
		return err
	}
	if err := id.bindSocket(local); err != nil {
		return id.failed(op, err)
	}
	return nil
}

func (id *cmID) bind(local netip.AddrPort) error {
	var d *device
	if !anywhere(local.Addr()) {
		if d = id.p.deviceOf(local.Addr()); d == nil {
			return withErrno(syscall.ENODEV, "%w: none has the address %v", verbs.ErrUnknownDevice, local.Addr())
		}
	}
	only := id.family.of(local.Addr())
	port, err := id.ports().take(portHold{id, d, id.reuse, only}, local.Port())
	if err != nil {
		return err
	}
	if d != nil {
		if err := id.hold(d); err != nil {
			id.ports().free(id, port)
			return err
		}
	}
	id.port, id.only = port, only
	if d != nil {
		defer id.join(d) // after mu is released
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.dev = d
	addr := local.Addr()
	if !addr.IsValid() {
		addr = netip.IPv4Unspecified()
	}
	id.local = netip.AddrPortFrom(addr.Unmap(), port)
	id.state = idBound
	return nil
}

// settle binds an identifier that has no device yet to d.
func (id *cmID) settle(d *device) error {
	if err := id.hold(d); err != nil {
		return err
	}
	id.ports().narrow(id, d, id.port)
	defer id.join(d) // after mu is released
	id.mu.Lock()
	defer id.mu.Unlock()
	id.dev = d
	if anywhere(id.local.Addr()) {
		id.local = netip.AddrPortFrom(d.cfg.Addr.Unmap(), id.port)
	}
	return nil
}

// ResolveAddr selects the device that reaches dst and binds to it, with a free port if none is
// bound. The device is the bound one or that of src, otherwise the one that owns dst, otherwise
// the provider's first. ADDR_RESOLVED follows for every address: an absent peer is
// detected only when connecting (UNREACHABLE). timeout is ignored. It blocks only as Bind does.
//
// Implements: rdma_resolve_addr.
func (id *cmID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	const op = "rdma_resolve_addr"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idIdle, idBound); err != nil {
		return err
	}
	if anywhere(dst.Addr()) || dst.Port() == 0 && !id.datagrams() { // a group has no port
		return id.refuse(op, "%v is no destination", dst)
	}
	s, d, _ := id.look()
	switch {
	case id.ib:
		return id.refuse(op, "the identifier has an address of InfiniBand")
	case s == idIdle:
		if err := id.bind(src); err != nil {
			return id.failed(op, err)
		}
		_, d, _ = id.look()
	case src.IsValid() && d != nil && !anywhere(src.Addr()) && id.p.deviceOf(src.Addr()) != d:
		return id.refuse(op, "the identifier is bound to %s, and %v is not there", d.cfg.Name, src)
	}
	return id.resolveFrom(d, op, dst)
}

// resolveFrom finds the way to dst from a device, or if that is nil from one that it chooses. The caller holds api.
func (id *cmID) resolveFrom(d *device, op string, dst netip.AddrPort) error {
	if d == nil {
		if d = id.p.deviceOf(dst.Addr()); d == nil {
			all := id.p.plugged()
			if len(all) == 0 {
				return id.failed(op, withErrno(syscall.ENODEV, "%w: there is none", verbs.ErrUnknownDevice))
			}
			d = all[0]
		}
		if err := id.settle(d); err != nil {
			return id.failed(op, err)
		}
	}
	path, local, mtu, err := id.resolve(d, dst)
	if err != nil {
		return id.failed(op, err)
	}
	id.mu.Lock()
	id.path, id.mtu, id.local = path, mtu, netip.AddrPortFrom(local, id.port)
	id.peer = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	id.state = idAddrResolved
	id.mu.Unlock()
	id.report(verbs.CMEvent{Type: verbs.CMAddrResolved})
	return nil
}

// ResolveRoute resolves the path to the peer. There is always exactly one, so ROUTE_RESOLVED always
// follows. The argument timeout is ignored. It does not block.
//
// Implements: rdma_resolve_route.
func (id *cmID) ResolveRoute(timeout time.Duration) error {
	const op = "rdma_resolve_route"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idAddrResolved); err != nil {
		return err
	}
	id.become(idRouteResolved)
	id.report(verbs.CMEvent{Type: verbs.CMRouteResolved})
	return nil
}

// Listen accepts requests, which CONNECT_REQUEST events report. backlog bounds, on each device,
// the unanswered requests and, over all devices, those whose event is not yet taken (as
// ucma_event_handler of the kernel's ucma.c does); 0 selects 1024. Requests beyond it are
// rejected with no resources; those of another process get no answer, and are repeated. Without a preceding Bind it listens on a free port of all devices.
// It waits for running Progress calls of the devices.
//
// Implements: rdma_listen.
func (id *cmID) Listen(backlog int) error {
	const op = "rdma_listen"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idIdle, idBound); err != nil {
		return err
	}
	if s, _, _ := id.look(); s == idIdle {
		if err := id.bindSocket(netip.AddrPort{}); err != nil {
			return id.failed(op, err)
		}
	}
	if id.reuse {
		if err := id.stopSharing(); err != nil {
			return id.failed(op, err)
		}
	}
	_, d, _ := id.look()
	id.backlog = backlog
	id.become(idListening) // before the first request arrives
	var err error
	if d != nil {
		err = id.listenHeld(d)
	} else {
		id.p.cm.wild.add(id) // before the devices are listed: a new device is in the list, or calls follow
		for _, d := range id.p.plugged() {
			if err = id.listenOn(d); errors.Is(err, verbs.ErrDeviceRemoved) {
				err = nil // removed just now
			} else if err != nil {
				break
			}
		}
	}
	if err == nil {
		return nil
	}
	id.p.cm.wild.drop(id)
	for _, l := range id.listeners {
		l.close()
		if d == nil {
			id.release(l.dev)
		}
	}
	id.listeners = nil
	id.become(idBound)
	return id.failed(op, err)
}
