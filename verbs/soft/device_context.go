package soft

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// deviceContext is an open device. Several contexts may be open on one device; they share its
// engine, its queue pair numbers and its keys.
type deviceContext struct {
	dev    *device
	async  *asyncChannel
	closed atomic.Bool // set by Close under the port's token; any goroutine may read it

	// counts counts the living objects; under the port's token.
	counts verbs.ObjectCount
}

var (
	_ verbs.Context      = (*deviceContext)(nil)
	_ verbs.PollReceiver = (*deviceContext)(nil)
)

// open makes a context. The first context attaches the device.
func (p *Provider) open(d *device) (*deviceContext, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	bell, err := sys.NewEvent()
	if err != nil {
		return nil, opError("ibv_open_device", d.cfg.Name, 0, "%w", err)
	}
	if d.removed.Load() { // since it was found
		return nil, errors.Join(p.unknown(d.cfg.Name), bell.Close())
	}
	if d.opens == 0 {
		if err := d.attach(); err != nil {
			return nil, opError("ibv_open_device", d.cfg.Name, syscall.EADDRINUSE, "%w", errors.Join(err, bell.Close()))
		}
	}
	d.opens++
	liveObjects.Add(1)
	c := &deviceContext{dev: d}
	c.async = &asyncChannel{ctx: c, notifier: bell}
	d.contexts = append(d.contexts, c)
	return c, nil
}

// String returns the context's name.
func (c *deviceContext) String() string { return "context of " + c.dev.cfg.Name }

// Close closes the context. It returns [verbs.ErrBusy] while the context has living objects. The
// last context of a device detaches it from the fabric.
//
// Implements: ibv_close_device.
func (c *deviceContext) Close() error {
	p := c.dev.provider
	p.opening.Lock()
	defer p.opening.Unlock()
	if c.closed.Load() {
		return nil
	}
	var left verbs.ObjectCount
	c.dev.exclusive(func() {
		if left = c.counts; left.Zero() {
			c.closed.Store(true)
		}
	})
	if !left.Zero() {
		return opError("ibv_close_device", c.String(), syscall.EBUSY, "%w: alive: %v", verbs.ErrBusy, left)
	}
	c.dev.contexts = slices.DeleteFunc(c.dev.contexts, func(o *deviceContext) bool { return o == c })
	c.dev.opens--
	liveObjects.Add(-1)
	if c.dev.opens == 0 {
		c.dev.detach()
	}
	return c.async.close()
}

// exclusive runs fn with the port's token, so that the engine is not running. It returns
// [verbs.ErrClosed] or [verbs.ErrDeviceRemoved] without calling fn. It waits for a running
// Progress call, and must not be called from one. Calls that create, change or query use
// exclusive; calls that close an object use closing.
func (c *deviceContext) exclusive(op string, fn func()) error {
	removed := false
	if err := c.closing(op, func() {
		if removed = c.dev.removed.Load(); !removed {
			fn()
		}
	}); err != nil {
		return err
	}
	if removed {
		return removedError(op, c.String())
	}
	return nil
}

// closing is exclusive for calls that also work on a removed device.
func (c *deviceContext) closing(op string, fn func()) error {
	gone := c.closed.Load()
	if !gone {
		c.dev.exclusive(func() {
			if gone = c.closed.Load(); !gone {
				fn()
			}
		})
	}
	if gone {
		return opError(op, c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	return nil
}

// Device returns the device's description.
func (c *deviceContext) Device() verbs.DeviceInfo { return c.dev.info() }

// QueryDevice returns the attributes and limits. It does not block.
//
// Implements: ibv_query_device.
func (c *deviceContext) QueryDevice() (verbs.DeviceAttr, error) {
	l := &c.dev.cfg.Limits
	if err := c.checkPresent("ibv_query_device"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return verbs.DeviceAttr{
		FWVersion: "1.0", VendorPartID: 1, MaxMRSize: 1 << 48,
		MaxQP: l.MaxQP, MaxQPWR: l.MaxQPWR, MaxSGE: l.MaxSGE, MaxSGERead: min(maxSGERead, l.MaxSGE), MaxInline: l.MaxInline,
		MaxCQ: l.MaxCQ, MaxCQE: l.MaxCQE, MaxMR: l.MaxMR, MaxPD: l.MaxPD,
		MaxSRQ: l.MaxSRQ, MaxSRQWR: l.MaxSRQWR, MaxSRQSGE: l.MaxSRQSGE,
		MaxMW: l.MaxMW, Caps: memoryCaps() | verbs.CapCurrQPStateMod | verbs.CapRCRNRNakGen | verbs.CapSRQResize | verbs.CapXRC,
		MaxAH: l.MaxAH, MaxMcastGrp: l.MaxMcastGrp, MaxMcastQP: l.MaxMcastQP,
		MaxQPRdAtom: l.MaxRdAtomic, MaxQPInitRdAtom: l.MaxRdAtomic, AckDelay: ackDelay,
		AtomicCap: verbs.AtomicGlob, CompVectors: l.CompVectors, PhysPorts: 1,
		Opcodes: supported, QPTypes: types, ODP: odpCaps(),
	}, nil
}

// QPLimits returns want, at most the limits of the configuration. It does not block.
//
// Implements: ibv_create_qp, as a query.
func (c *deviceContext) QPLimits(t verbs.QPType, want verbs.QPCap, _ bool) (verbs.QPCap, error) {
	const op = "ibv_create_qp"
	l := &c.dev.cfg.Limits
	if err := c.checkPresent(op); err != nil {
		return want, err
	}
	if services[t] == nil {
		return want, notYet(op, c.String(), fmt.Sprintf("queue pairs of type %v", t))
	}
	return verbs.QPCap{
		MaxSendWR: min(want.MaxSendWR, uint32(l.MaxQPWR)), MaxRecvWR: min(want.MaxRecvWR, uint32(l.MaxQPWR)),
		MaxSendSGE: min(want.MaxSendSGE, uint32(l.MaxSGE)), MaxRecvSGE: min(want.MaxRecvSGE, uint32(l.MaxSGE)),
		MaxInlineData: min(want.MaxInlineData, uint32(l.MaxInline)),
	}, nil
}

// portNumber is the number of the only port.
const portNumber = 1

// QueryPort returns the port's attributes. It does not block. With LinkPeers it makes system calls to find
// the addresses of the machine, and the LID is the UDP port of the socket of dialed connections, which it
// opens if necessary; 0 if that is impossible.
//
// Implements: ibv_query_port.
func (c *deviceContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	if port != portNumber {
		return verbs.PortAttr{}, opError("ibv_query_port", c.String(), syscall.EINVAL, "%w: port %d, there is only port %d", verbs.ErrInvalid, port, portNumber)
	}
	if err := c.checkPresent("ibv_query_port"); err != nil {
		return verbs.PortAttr{}, err
	}
	c.dev.findGIDs()
	state := verbs.PortActive
	if c.dev.down.Load() {
		state = verbs.PortDown
	}
	lid := uint16(0)
	if e, err := c.dev.dialEnd(); err == nil {
		lid = e.Port()
	}
	return verbs.PortAttr{
		State: state, MaxMTU: c.dev.cfg.MTU, ActiveMTU: c.dev.cfg.MTU, LID: lid,
		GIDTblLen: c.dev.gids.len(), MaxMsgSize: c.dev.cfg.Limits.MaxMsgSize, PKeyTblLen: 1, LinkLayer: verbs.LinkEthernet,
	}, nil
}

// QueryGID returns an entry of the port's address table as QueryPort has found it, the zero GID for an
// empty one. Entry 0 is the device's own address. It does not block.
//
// Implements: ibv_query_gid.
func (c *deviceContext) QueryGID(port uint8, index int) (verbs.GID, error) {
	if n := c.dev.gids.len(); port != portNumber || index < 0 || index >= n {
		return verbs.GID{}, opError("ibv_query_gid", c.String(), syscall.EINVAL, "%w: entry %d of port %d, there are only %d of port %d", verbs.ErrInvalid, index, port, n, portNumber)
	}
	return c.dev.gids.at(index), c.checkPresent("ibv_query_gid")
}

// AllocPD makes a protection domain.
//
// Implements: ibv_alloc_pd.
func (c *deviceContext) AllocPD() (verbs.PD, error) {
	const op = "ibv_alloc_pd"
	p := &protectionDomain{ctx: c}
	full := false
	if err := c.exclusive(op, func() {
		if full = c.counts.PD >= c.dev.cfg.Limits.MaxPD; full {
			return
		}
		c.counts.PD++
		p.number = c.dev.nextNumber()
	}); err != nil {
		return nil, err
	}
	if full {
		return nil, opError(op, c.String(), syscall.ENOMEM, "all %d protection domains are in use", c.dev.cfg.Limits.MaxPD)
	}
	return p, nil
}

// CreateCompChannel makes a completion channel with a descriptor of its own.
//
// Implements: ibv_create_comp_channel.
func (c *deviceContext) CreateCompChannel() (verbs.CompChannel, error) {
	const op = "ibv_create_comp_channel"
	bell, err := sys.NewEvent()
	if err != nil {
		return nil, opError(op, c.String(), 0, "%w", err)
	}
	ch := &compChannel{ctx: c, notifier: bell}
	if err := c.exclusive(op, func() {
		ch.number = c.dev.nextNumber()
		c.counts.CompChannel++
	}); err != nil {
		return nil, errors.Join(err, bell.Close())
	}
	return ch, nil
}

// CreateCQ makes a completion queue of cqe entries.
//
// Implements: ibv_create_cq.
func (c *deviceContext) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	const op = "ibv_create_cq"
	l := &c.dev.cfg.Limits
	if cqe < 1 || cqe > l.MaxCQE {
		return nil, opError(op, c.String(), syscall.EINVAL, "%w: %d entries, must be between 1 and %d", verbs.ErrInvalid, cqe, l.MaxCQE)
	}
	if vector < 0 || vector >= l.CompVectors {
		return nil, opError(op, c.String(), syscall.EINVAL, "%w: completion vector %d, there are %d", verbs.ErrInvalid, vector, l.CompVectors)
	}
	q := &completionQueue{ctx: c, userData: userData}
	if ch != nil {
		own, ok := ch.(*compChannel)
		if !ok || own == nil || own.ctx != c {
			return nil, opError(op, c.String(), syscall.EINVAL, "%w: %v is not a channel of this context", verbs.ErrInvalid, ch)
		}
		q.ch = own
	}
	q.cur = newCQRing(cqe)
	q.ring.Store(q.cur)
	var err error
	if e := c.exclusive(op, func() {
		switch {
		case c.counts.CQ >= l.MaxCQ:
			err = opError(op, c.String(), syscall.ENOMEM, "all %d completion queues are in use", l.MaxCQ)
		case q.ch != nil && q.ch.closed.Load():
			err = opError(op, c.String(), syscall.EINVAL, "%w: %v", verbs.ErrClosed, q.ch)
		default:
			c.counts.CQ++
			q.number = c.dev.nextNumber()
			if q.ch != nil {
				q.ch.cqs++
			}
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Async returns the channel of asynchronous events. It lives as long as the context.
func (c *deviceContext) Async() verbs.AsyncChannel { return c.async }

// Objects counts the living objects.
func (c *deviceContext) Objects() (n verbs.ObjectCount) {
	if err := c.closing("objects", func() { n = c.counts }); err != nil {
		return verbs.ObjectCount{} // a closed context has none
	}
	return n
}

// count formats a number of objects for a message.
func count(n int, what string) string { return fmt.Sprintf("%d %s", n, what) }
