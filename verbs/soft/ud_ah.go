package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// addressHandle is an AH: the destination of datagrams. A request looks its handle up when it is
// sent; if the handle is closed by then, the request completes with LOC_QP_OP_ERR (rxe_av.c,
// rxe_get_av).
type addressHandle struct {
	pd     *protectionDomain
	handle uint64
	attr   verbs.AHAttr
	route  *fabric.Route // of a unicast address
	group  *fabric.Group // of a multicast one
	net    fabric.NetHeader

	closed atomic.Bool // set by Close under the port's token
}

var _ verbs.AH = (*addressHandle)(nil)

// The greatest values of members with few bits, and the default hop limit of hosts, for a path
// that gives none.
const (
	maxFlowLabel    = 1<<20 - 1
	maxSL           = 15
	defaultHopLimit = 64
)

// A handle holds an index, counted from 1 so that 0 names no object, and a counter that changes
// with each creation, so that a closed handle does not name a new one.
const ahIndexBits = 32

// CreateAH makes an address handle. The address need not exist: datagrams to an unknown one are
// lost. A multicast GID names a group.
//
// Implements: ibv_create_ah.
func (p *protectionDomain) CreateAH(attr *verbs.AHAttr) (verbs.AH, error) {
	const op = "ibv_create_ah"
	refuse := func(format string, a ...any) (verbs.AH, error) {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
	}
	switch {
	case attr.Port != portNumber:
		return refuse("port %d, there is only port %d", attr.Port, portNumber)
	case attr.DGID == verbs.GID{} || attr.DGID.Addr().IsUnspecified():
		return refuse("no destination address")
	case attr.FlowLabel > maxFlowLabel:
		return refuse("flow label 0x%x, at most 0x%x", attr.FlowLabel, maxFlowLabel)
	case attr.SL > maxSL:
		return refuse("service level %d, at most %d", attr.SL, maxSL)
	}
	if err := p.ctx.dev.checkSource(attr); err != nil {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w", err)
	}
	a := &addressHandle{pd: p, attr: *attr, net: fabric.NetHeader{
		FlowLabel: attr.FlowLabel, TrafficClass: attr.TrafficClass, HopLimit: attr.HopLimit,
	}}
	if a.net.HopLimit == 0 {
		a.net.HopLimit = defaultHopLimit
	}
	var err error
	if e := p.exclusive(op, func() { err = p.addAH(a) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, opError(op, p.String(), syscall.ENOMEM, "%w", err)
	}
	return a, nil
}

// addAH assigns a its handle. The caller holds the token.
func (p *protectionDomain) addAH(a *addressHandle) error {
	d := p.ctx.dev
	if d.ahCount >= d.cfg.Limits.MaxAH {
		return fmt.Errorf("all %d address handles are in use", d.cfg.Limits.MaxAH)
	}
	i := len(d.ahs)
	if n := len(d.freeAHs); n > 0 {
		i, d.freeAHs = d.freeAHs[n-1], d.freeAHs[:n-1]
	} else {
		d.ahs = append(d.ahs, nil)
	}
	d.ahRound++
	a.handle = uint64(d.ahRound)<<ahIndexBits | uint64(i+1)
	d.ahs[i] = a
	d.ahCount++
	if isMulticast(a.attr.DGID) {
		a.group = d.p.Fabric().Group(a.attr.DGID)
	} else {
		a.route = d.p.Route(d.pathOf(&a.attr))
	}
	p.ahs++
	p.ctx.counts.AH++
	return nil
}

// findAH returns the open address handle with this number, nil when there is none.
func (d *device) findAH(handle uint64) *addressHandle {
	i := handle&(1<<ahIndexBits-1) - 1 // 0 wraps to a huge value
	if i >= uint64(len(d.ahs)) {
		return nil
	}
	if a := d.ahs[i]; a != nil && a.handle == handle {
		return a
	}
	return nil
}

// Close destroys the handle. It does not wait for requests that name it: those not yet sent fail.
//
// Implements: ibv_destroy_ah.
func (a *addressHandle) Close() error {
	if a.closed.Load() {
		return nil
	}
	return a.pd.ctx.closing("ibv_destroy_ah", func() {
		if a.closed.Swap(true) {
			return
		}
		d := a.pd.ctx.dev
		i := int(a.handle&(1<<ahIndexBits-1)) - 1
		d.ahs[i] = nil
		d.freeAHs = append(d.freeAHs, i)
		d.ahCount--
		if a.group != nil {
			d.p.Fabric().Ungroup(a.group)
		} else {
			d.p.Unroute(a.route)
		}
		a.pd.ahs--
		a.pd.ctx.counts.AH--
	})
}

// Handle returns the number that names the address handle in requests.
func (a *addressHandle) Handle() uint64 { return a.handle }

// String describes the handle by its destination.
func (a *addressHandle) String() string { return fmt.Sprintf("AH to %v in %v", a.attr.DGID, a.pd) }

// isMulticast reports whether a GID is a group's (rdma_is_multicast_addr: also an IPv4 one).
func isMulticast(g verbs.GID) bool { return g.Addr().IsMulticast() }
