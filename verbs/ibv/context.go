//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Signs of the device's removal; see [deviceContext.seen].
const (
	sawFatal   = 1 << 0 // DEVICE_FATAL was taken from the asynchronous channel
	sawEIO     = 1 << 1 // a call returned EIO
	sawRemoval = sawFatal | sawEIO
)

// deviceContext is an open device.
type deviceContext struct {
	node  // its users are all objects and calls in progress
	p     *Provider
	t     *verbsTable
	c     *C.struct_vb_context
	info  verbs.DeviceInfo // but for the addresses; immutable
	async asyncChannel
	ids   registry

	// mu guards counts, and users and closed of all nodes. It is held for counting only, never
	// during a C call.
	mu     sync.Mutex
	counts verbs.ObjectCount
	opened int // 1 while the context is open; counted like an object

	// addrs are the addresses, as Addrs has read them last. Any goroutine writes and reads them.
	addrs atomic.Pointer[[]netip.Addr]
	// checking is written with addrs: the device has addresses that cannot be used yet.
	checking atomic.Bool

	// rxe reports that the device is Soft-RoCE. Immutable.
	rxe bool

	// caps are the device's features, and atomics whether it has atomics. Immutable.
	caps    verbs.DeviceCaps
	atomics bool

	probed probed

	// ackDelay is the delay that the device reports, a code of verbs.AckTimeout. Immutable.
	ackDelay uint8

	// look holds the BATCH_LOOK_ bits that apply to all lists of sends of the context. Immutable.
	look uint16

	// windows counts memory windows, so that a context without any need not search lists for
	// bindings. Raised before a window is made, lowered after it is gone; read by Execute. It
	// publishes nothing.
	windows atomic.Int32

	// seen collects the signs that the device is gone. Bits are set by any goroutine that
	// observes one and never cleared; Execute reads it. It publishes nothing.
	seen atomic.Uint32
}

var (
	_ verbs.Context   = (*deviceContext)(nil)
	_ verbs.Addresser = (*deviceContext)(nil)
)

func newContext(p *Provider, t *verbsTable, c *C.struct_vb_context, info verbs.DeviceInfo) (*deviceContext, error) {
	if e := syscall.Errno(C.shim_nonblock(c.async_fd)); e != 0 {
		C.shim_close(t, c) // the failure is reported already
		return nil, failed("fcntl", info.Name, e)
	}
	// A device whose query fails is not used, because a wrong guess of its kind would be harmful:
	// Soft-RoCE's lists must be checked before the kernel reads them, and the completions of
	// hardware must be left unchanged.
	var d C.struct_vb_device_attr_ex
	if e := syscall.Errno(C.shim_query_device(t, c, &d)); e != 0 {
		C.shim_close(t, c) // the failure is reported already
		return nil, failed("ibv_query_device", info.Name, e)
	}
	ctx := &deviceContext{p: p, t: t, c: c, info: info, rxe: softRoCE(c, &d.orig_attr), ackDelay: uint8(d.orig_attr.local_ca_ack_delay),
		caps: capsOf(&d), atomics: d.orig_attr.atomic_cap != C.VB_ATOMIC_NONE}
	ctx.info.VectorCPUs = vectorCPUs(system, info.Name, int(c.num_comp_vectors))
	if ctx.rxe {
		ctx.look = lookOpcodes | lookInvalid
	}
	ctx.addrs.Store(&info.Addr)
	ctx.ctx = ctx
	ctx.async = asyncChannel{ctx: ctx, fd: int(c.async_fd)}
	ctx.born("context of "+info.Name, &ctx.opened)
	return ctx, nil
}

// Close closes the context; [verbs.ErrBusy] while it has living objects.
//
// Implements: ibv_close_device.
func (c *deviceContext) Close() error {
	return c.shut("ibv_close_device", func() syscall.Errno {
		if e := c.probed.clear(); e != 0 && !c.gone(e) {
			return e
		}
		return syscall.Errno(C.shim_close(c.t, c.c))
	})
}

// Device returns the name and location of the device, and the addresses that were read last.
func (c *deviceContext) Device() verbs.DeviceInfo {
	info := c.info
	info.Addr = *c.addrs.Load()
	return info
}

// Async is the channel of asynchronous events.
func (c *deviceContext) Async() verbs.AsyncChannel { return &c.async }

// Objects counts the live objects.
func (c *deviceContext) Objects() verbs.ObjectCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// failed is the package's failed for a call on this context's device: it notices the removal of
// the device.
func (c *deviceContext) failed(op, object string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	if c.gone(errno) {
		return opError(op, object, errno, "%w", verbs.ErrDeviceRemoved)
	}
	return failed(op, object, errno)
}

// saw records a sign that the device is gone.
func (c *deviceContext) saw(bit uint32) { c.seen.Or(bit) }

// removed reports whether the device is gone.
func (c *deviceContext) removed() bool { return c.seen.Load() == sawRemoval }

// gone reports whether errno means that the device is gone; once that is known any errno does. It
// records errno as a sign: when an object is forgotten because of it, no later batch may use the
// device. ENODEV is no sign before DEVICE_FATAL.
func (c *deviceContext) gone(errno syscall.Errno) bool {
	if fatal := c.seen.Load()&sawFatal != 0; errno == syscall.EIO || errno == syscall.ENODEV && fatal {
		c.saw(sawEIO)
	}
	return c.removed()
}

// make creates a C object below parents, which it keeps alive. create returns the errno of the
// call.
func (c *deviceContext) make(op string, n *node, parents []*node, count *int, create func() (label string, e syscall.Errno)) error {
	n.ctx = c
	parents = append(parents, &c.node)
	if err := c.keep(op, parents...); err != nil {
		return err
	}
	label, errno := create()
	if errno != 0 {
		c.release(parents...)
		if n.id != 0 {
			c.ids.forget(n.id)
		}
		return c.failed(op, c.label, errno)
	}
	n.born(label, count, parents...)
	return nil
}

// AllocPD makes a protection domain.
//
// Implements: ibv_alloc_pd.
func (c *deviceContext) AllocPD() (verbs.PD, error) {
	p := &protectionDomain{}
	if err := c.make("ibv_alloc_pd", &p.node, nil, &c.counts.PD, func() (string, syscall.Errno) {
		var err error
		if p.c, err = C.shim_alloc_pd(c.t, c.c); p.c == nil {
			return "", errnoOf(err)
		}
		return fmt.Sprintf("PD %d of %s", p.c.handle, c.info.Name), 0
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// CreateCompChannel makes a completion channel.
//
// Implements: ibv_create_comp_channel.
func (c *deviceContext) CreateCompChannel() (verbs.CompChannel, error) {
	ch := &compChannel{}
	if err := c.make("ibv_create_comp_channel", &ch.node, nil, &c.counts.CompChannel, func() (string, syscall.Errno) {
		var err error
		if ch.c, err = C.shim_create_channel(c.t, c.c); ch.c == nil {
			return "", errnoOf(err)
		}
		if e := syscall.Errno(C.shim_nonblock(ch.c.fd)); e != 0 {
			C.shim_destroy_channel(c.t, ch.c) // the failure is reported already
			return "", e
		}
		ch.fd = int(ch.c.fd)
		return fmt.Sprintf("completion channel %d of %s", ch.fd, c.info.Name), 0
	}); err != nil {
		return nil, err
	}
	return ch, nil
}

// OpenXRCD opens an extended-connection domain.
//
// Implements: ibv_open_xrcd.
func (c *deviceContext) OpenXRCD(fd int, oflags int) (verbs.XRCD, error) {
	const op = "ibv_open_xrcd"
	if fd != int(C.int(fd)) || oflags != int(C.int(oflags)) {
		return nil, opError(op, c.label, syscall.EINVAL, "%w: file descriptor %d, flags %#x", verbs.ErrInvalid, fd, oflags)
	}
	x := &xrcDomain{}
	if fd < 0 {
		oflags |= os.O_CREATE // a private domain is always a new one (ibv_open_xrcd(3))
	}
	if err := c.make(op, &x.node, nil, &c.counts.XRCD, func() (string, syscall.Errno) {
		var err error
		if x.c, err = C.shim_open_xrcd(c.c, C.int(fd), C.int(oflags)); x.c == nil {
			return "", errnoOf(err)
		}
		return "XRCD of " + c.info.Name, 0
	}); err != nil {
		return nil, err
	}
	return x, nil
}
