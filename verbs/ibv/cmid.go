//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// idState is the progress of a connection. librdmacm and the kernel check most orders of calls.
// The states here exclude the calls that would crash there (a call that needs the device without
// one), or that would fail only after the queue pair was moved.
//
//	idIdle ──────────────── Connect, ESTABLISHED ────────> idConnected ── Disconnect ──> idEnded
//	   └─ CONNECT_RESPONSE without QP, or held ──> idReplied ─ Accept ─^   │ └─ DISCONNECTED ─> idLeft ─ Disconnect ─^
//	idAsked (from a CONNECT_REQUEST) ── Accept ───────────────────┘
//	   └─ Reject ──> idEnded                        (a disconnect of both:) idEnded ─ DISCONNECTED ─> idLeft
type idState uint8

const (
	idIdle idState = iota
	idAsked
	idReplied
	idConnected
	idLeft
	idEnded
)

// cmID is a connection identifier.
type cmID struct {
	p     *Provider
	t     *cmTable
	c     *C.struct_vb_rdma_cm_id // nil for XRC until it is bound; written under api
	num   uint64                  // its context in C
	label string
	ps    verbs.PortSpace
	kind  verbs.QPType // of its queue pairs

	// userData is the user's value. Written by SetUserData; any goroutine may read it.
	userData atomic.Uint64

	// api serializes calls on the identifier. Under it:
	api    sync.Mutex
	state  idState
	broken bool // connecting failed here: REJECTED and DISCONNECTED repeat that
	offer  verbs.ConnParam
	groups map[C.struct_sockaddr_storage]*membership // by address
	ece    verbs.ECE                                 // to send: from SetLocalECE, or of the queue pair of CreateQP
	// timeout and retries are the timeout and retry count of this end's requests, from
	// SetAckTimeout and Connect or Accept.
	timeout, retries uint8
	tos              uint8               // from SetTOS; 0: not set
	init             C.struct_vb_qp_attr // what CreateQP moved the queue pair to INIT with
	held             bool                // ConnParam.HoldResponse

	// Under p.cmIDs.mu.
	ch      *cmChannel
	unacked int
	closed  bool

	// seen holds the addresses of the ends, copied from C when they may have changed, so that
	// readers do not race with the library. Under mu.
	mu   sync.Mutex
	seen ends
	qp   *queuePair // written under api and mu
}

// ends holds the device with its port, and the two addresses of an identifier.
type ends struct {
	device          string
	port            uint8
	local, peer     netip.AddrPort
	localIB, peerIB verbs.IBAddr
}

var _ verbs.CMID = (*cmID)(nil)

// newCMID registers an identifier with ch. The C object is made afterwards.
func newCMID(ch *cmChannel, ps verbs.PortSpace, kind verbs.QPType, userData uint64) *cmID {
	p := ch.p
	id := &cmID{p: p, t: ch.t, num: lastID.Add(1), ps: ps, kind: kind, ch: ch, timeout: verbs.DefaultAckTimeout}
	id.label = fmt.Sprintf("CM identifier %d", id.num)
	id.userData.Store(userData)
	p.cmIDs.mu.Lock()
	defer p.cmIDs.mu.Unlock()
	if p.cmIDs.m == nil {
		p.cmIDs.m = map[uint64]*cmID{}
	}
	p.cmIDs.m[id.num] = id
	ch.ids++
	p.idents.Add(1)
	live.Add(1)
	return id
}

// forget reverses newCMID.
func (id *cmID) forget() {
	id.p.cmIDs.mu.Lock()
	defer id.p.cmIDs.mu.Unlock()
	delete(id.p.cmIDs.m, id.num)
	id.closed = true
	id.ch.ids--
	id.p.idents.Add(-1)
	live.Add(-1)
}

// String names the identifier.
func (id *cmID) String() string { return id.label }

// UserData is the value given at creation or by SetUserData.
func (id *cmID) UserData() uint64 { return id.userData.Load() }

// SetUserData replaces the value.
func (id *cmID) SetUserData(v uint64) { id.userData.Store(v) }

// datagrams reports whether the port space has no connections: ucma_is_ud_qp.
func (id *cmID) datagrams() bool { return id.kind == verbs.QPTUD }

// xrc reports whether the identifier is for XRC: then librdmacm makes it as it binds it.
func (id *cmID) xrc() bool { return id.kind == verbs.QPTXRCSend || id.kind == verbs.QPTXRCRecv }

// refuse returns the error of a call that cannot be made now.
func (id *cmID) refuse(op, format string, a ...any) error {
	return opError(op, id.label, syscall.EINVAL, "%w: %s", verbs.ErrInvalid, fmt.Sprintf(format, a...))
}

// call makes a C call on the identifier and keeps it from being closed meanwhile.
func (id *cmID) call(op string, f func() syscall.Errno) error {
	id.api.Lock()
	defer id.api.Unlock()
	return id.locked(op, f)
}

// locked is call under api.
func (id *cmID) locked(op string, f func() syscall.Errno) error {
	if id.isClosed() {
		return opError(op, id.label, syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if id.c == nil {
		return id.refuse(op, "the identifier is not bound")
	}
	errno := f()
	var on *deviceContext
	if id.qp != nil { // written under api, which is held
		on = id.qp.ctx
	}
	err := id.failed(op, on, errno)
	id.refresh()
	return err
}

// failed is the package's failed for a call on an identifier whose queue pair is, or will be, on
// a context; nil for none. It notices the removal of the device. The kernel closes the
// identifiers of a removed device, from a work queue, and fails all calls on them until their
// owner destroys them (ucma_get_ctx in drivers/infiniband/core/ucma.c): with ENXIO since Linux
// 5.10, which no other failure there uses. The earlier EIO is also the error of the queue pair's
// removed device. The event may come later.
func (id *cmID) failed(op string, on *deviceContext, errno syscall.Errno) error {
	switch {
	case errno == syscall.ENXIO:
		return opError(op, id.label, errno, "%w", verbs.ErrDeviceRemoved)
	case on != nil:
		return on.failed(op, id.label, errno)
	}
	return failed(op, id.label, errno)
}

func (id *cmID) isClosed() bool {
	id.p.cmIDs.mu.Lock()
	defer id.p.cmIDs.mu.Unlock()
	return id.closed
}

// bound returns an error while the identifier has no device, which librdmacm's calls assume.
func (id *cmID) bound(op string) error {
	if id.Device() == "" && !id.isClosed() {
		return id.refuse(op, "the identifier is not bound to a device")
	}
	return nil
}

// Bind sets the local address.
//
// Implements: rdma_bind_addr.
func (id *cmID) Bind(local netip.AddrPort) error {
	return id.bind(sockaddr(local))
}

// BindIB binds to an address of InfiniBand.
//
// Implements: rdma_bind_addr with AF_IB.
func (id *cmID) BindIB(local verbs.IBAddr) error { return id.bind(sockaddrIB(local)) }

func (id *cmID) bind(sa C.struct_sockaddr_storage) error {
	const op = "rdma_bind_addr"
	id.api.Lock()
	defer id.api.Unlock()
	if id.c == nil {
		return id.create(op, &sa)
	}
	return id.locked(op, func() syscall.Errno { return syscall.Errno(C.shim_bind_addr(id.t, id.c, &sa)) })
}

// create makes the C object of an XRC identifier, bound to an address. Under api.
//
// Implements: rdma_create_ep of a passive side, and rdma_migrate_id.
func (id *cmID) create(op string, sa *C.struct_sockaddr_storage) error {
	if id.isClosed() {
		return opError(op, id.label, syscall.EBADF, "%w", verbs.ErrClosed)
	}
	id.p.cmIDs.mu.Lock()
	ch := id.ch // only Migrate writes it, under api
	id.p.cmIDs.mu.Unlock()
	e := syscall.Errno(C.shim_create_ep(id.t, ch.c, &id.c, C.uint64_t(id.num), C.vb_enum(id.ps), C.vb_enum(id.kind), sa))
	if e == 0 {
		id.refresh()
	}
	return id.failed(op, nil, e)
}

// milliseconds converts a timeout for C, at least 1.
func milliseconds(d time.Duration) C.int {
	const most = 1<<31 - 1
	d = min(d, most*time.Millisecond) // before the addition, which could overflow
	return C.int(max((d+time.Millisecond-1)/time.Millisecond, 1))
}

// ResolveAddr finds the device that reaches dst.
//
// Implements: rdma_resolve_addr.
func (id *cmID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	return id.resolve(sockaddr(src), sockaddr(dst), timeout)
}

// ResolveIB finds the device that reaches an address of InfiniBand.
//
// Implements: rdma_resolve_addr with AF_IB.
func (id *cmID) ResolveIB(src, dst verbs.IBAddr, timeout time.Duration) error {
	return id.resolve(sockaddrIB(src), sockaddrIB(dst), timeout)
}

func (id *cmID) resolve(from, to C.struct_sockaddr_storage, timeout time.Duration) error {
	const op = "rdma_resolve_addr"
	id.api.Lock()
	defer id.api.Unlock()
	if id.c == nil { // as rdma_resolve_addr of the kernel, which binds first (cma.c, cma_bind_addr)
		at := from
		if at.ss_family == 0 {
			at.ss_family = to.ss_family // any address of that family
		}
		if err := id.create(op, &at); err != nil {
			return err
		}
	}
	return id.locked(op, func() syscall.Errno {
		return syscall.Errno(C.shim_resolve_addr(id.t, id.c, &from, &to, milliseconds(timeout)))
	})
}

// ResolveRoute finds the path.
//
// Implements: rdma_resolve_route.
func (id *cmID) ResolveRoute(timeout time.Duration) error {
	const op = "rdma_resolve_route"
	if err := id.bound(op); err != nil {
		return err
	}
	return id.call(op, func() syscall.Errno { return syscall.Errno(C.shim_resolve_route(id.t, id.c, milliseconds(timeout))) })
}

// Listen accepts requests.
//
// Implements: rdma_listen.
func (id *cmID) Listen(backlog int) error {
	const op = "rdma_listen"
	n := C.int(min(max(backlog, 0), 1<<16))
	id.api.Lock()
	defer id.api.Unlock()
	if id.c == nil { // as rdma_listen of the kernel's cma.c, which binds an identifier that is not bound
		any4 := sockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
		if err := id.create(op, &any4); err != nil {
			return err
		}
	}
	return id.locked(op, func() syscall.Errno { return syscall.Errno(C.shim_listen(id.t, id.c, n)) })
}

// QP is the queue pair; nil when there is none.
func (id *cmID) QP() verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == nil {
		return nil // and not a nil *queuePair in an interface
	}
	return id.qp
}

// Migrate moves the identifier's future events to another channel of the
// provider.
//
// Implements: rdma_migrate_id.
func (id *cmID) Migrate(to verbs.CMChannel) error {
	const op = "rdma_migrate_id"
	ch, ok := to.(*cmChannel)
	if !ok || ch == nil || ch.p != id.p {
		return id.refuse(op, "%v is not a channel of this provider", to)
	}
	if err := ch.begin(op); err != nil {
		return err
	}
	defer ch.end()
	id.api.Lock()
	defer id.api.Unlock()
	if id.c == nil && !id.isClosed() {
		id.move(ch)
		return nil
	}
	return id.locked(op, func() syscall.Errno {
		id.p.cmIDs.mu.Lock()
		unacked := id.unacked
		id.p.cmIDs.mu.Unlock()
		if unacked > 0 {
			return syscall.EBUSY
		}
		if e := syscall.Errno(C.shim_migrate(id.t, id.c, ch.c)); e != 0 {
			return e
		}
		id.move(ch)
		return 0
	})
}

// move counts the identifier at another channel. Under api.
func (id *cmID) move(ch *cmChannel) {
	id.p.cmIDs.mu.Lock()
	defer id.p.cmIDs.mu.Unlock()
	id.ch.ids--
	id.ch = ch
	ch.ids++
}
