//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// probed is what creating queue pairs has shown about a device: libibverbs has no query for it.
type probed struct {
	mu     sync.Mutex // held while the queue pairs are made
	types  []verbs.QPType
	limits map[limitsKey]verbs.QPCap
	// windows reports that noWindows is known: that the library cannot make memory windows.
	windows, noWindows bool
	left               []func() C.int // destroy what is left of probing, the newest last
	failed             syscall.Errno  // of the last object that was not destroyed
}

type limitsKey struct {
	typ     verbs.QPType
	want    verbs.QPCap
	windows bool
}

// maxLimits bounds the answers that a context keeps: a program has few kinds of queue pairs.
const maxLimits = 256

// prober makes queue pairs and destroys them at once. They are not among the counted objects of the context.
type prober struct {
	l       *probed
	pd      *protectionDomain
	cq      *C.struct_vb_cq
	windows bool // the queue pairs are to bind windows
}

// probe calls fn with a prober. An error is that of what the prober needs, or of destroying.
func (c *deviceContext) probe(fn func(p *prober)) error {
	l := &c.probed
	return c.use("ibv_create_qp", func() syscall.Errno {
		if e := l.clear(); e != 0 {
			return e
		}
		pd, err := C.shim_alloc_pd(c.t, c.c)
		if pd == nil {
			return errnoOf(err)
		}
		l.left = append(l.left, func() C.int { return C.shim_dealloc_pd(c.t, pd) })
		cq, err := C.shim_create_cq(c.t, c.c, 1, 0, nil, 0)
		if cq == nil {
			return cmp.Or(l.clear(), errnoOf(err))
		}
		l.left = append(l.left, func() C.int { return C.shim_destroy_cq(c.t, cq) })
		l.failed = 0
		fn(&prober{l: l, pd: &protectionDomain{node: node{ctx: c}, c: pd}, cq: cq})
		return cmp.Or(l.failed, l.clear())
	})
}

// clear destroys what was made for probing, the newest object first. What a library does not destroy stays for the
// next call, and that is at the latest the context's Close.
func (l *probed) clear() syscall.Errno {
	for n := len(l.left) - 1; n >= 0; n-- {
		if e := syscall.Errno(l.left[n]()); e != 0 {
			return e
		}
		l.left = l.left[:n]
	}
	return 0
}

// try makes a queue pair, and returns what was granted of want.
func (p *prober) try(t verbs.QPType, want verbs.QPCap) (verbs.QPCap, syscall.Errno) {
	a := C.struct_vb_qp_init_attr{send_cq: p.cq, qp_type: C.vb_enum(t), cap: capToC(&want)}
	if t != verbs.QPTXRCSend {
		a.recv_cq = p.cq
	}
	var q queuePair
	if e := q.create(p.pd, &a, &verbs.QPInitAttr{Type: t, Windows: p.windows}); e != 0 {
		return want, e
	}
	p.destroy(func() C.int { return C.shim_destroy_qp(p.pd.ctx.t, q.c) })
	return smaller(capFromC(&a.cap), want), 0
}

// destroy destroys an object that was made for probing, now or, if that fails, in clear.
func (p *prober) destroy(object func() C.int) {
	if e := syscall.Errno(object()); e != 0 {
		p.l.failed = e
		p.l.left = append(p.l.left, object)
	}
}

// refused reports whether a driver refuses the arguments, and not for another reason. E2BIG is cxgb4's for
// depths (Linux drivers/infiniband/hw/cxgb4/qp.c, c4iw_create_qp).
func refused(e syscall.Errno) bool {
	s := sentinel(e)
	return e == syscall.E2BIG || errors.Is(s, verbs.ErrInvalid) || errors.Is(s, verbs.ErrNotSupported)
}

// least are the smallest queues. Not every driver makes a queue pair without one (Linux erdma_verbs.c,
// erdma_qp_validate_cap).
func least(t verbs.QPType) verbs.QPCap {
	c := verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}
	if t != verbs.QPTXRCSend {
		c.MaxRecvWR, c.MaxRecvSGE = 1, 1
	}
	return c
}

// members are the capacities in the order in which fit raises them: the size of a request decides how many
// there can be.
func members(c *verbs.QPCap) [5]*uint32 {
	return [5]*uint32{&c.MaxSendSGE, &c.MaxRecvSGE, &c.MaxInlineData, &c.MaxSendWR, &c.MaxRecvWR}
}

func smaller(a, b verbs.QPCap) verbs.QPCap {
	for i, n := range members(&a) {
		*n = min(*n, *members(&b)[i])
	}
	return a
}

// fit returns the capacities that the device grants, at most want. It begins with the least, and raises one after
// the other as far as the device takes it with those before.
func (p *prober) fit(t verbs.QPType, want verbs.QPCap) (verbs.QPCap, syscall.Errno) {
	if got, e := p.try(t, want); e == 0 || !refused(e) {
		return got, e
	}
	have := least(t)
	if _, e := p.try(t, have); e != 0 {
		return want, e
	}
	for i, most := range members(&want) {
		if e := p.raise(t, &have, i, *most); e != 0 {
			return want, e
		}
	}
	return smaller(have, want), 0
}

// raise raises the member i of have to the largest value up to most that the device takes, by bisection. A driver
// may also grant less than was asked for (providers/hns/hns_roce_u_verbs.c, get_max_inline_data).
func (p *prober) raise(t verbs.QPType, have *verbs.QPCap, i int, most uint32) syscall.Errno {
	n := members(have)[i]
	for high, next := most, most; *n < high; next = *n + (high-*n+1)/2 { // *n is taken; above high is nothing wanted
		ask := *have
		*members(&ask)[i] = next
		got, e := p.try(t, ask)
		switch granted := *members(&got)[i]; {
		case e == 0:
			if *n = granted; granted < next || next == high {
				return 0
			}
		case !refused(e):
			return e
		default:
			high = next - 1
		}
	}
	return 0
}

// QPLimits returns what the device grants of want, as far as creating queue pairs shows: the first call for a want
// makes one, and some twenty small ones where that is refused. If a creation fails for another reason (memory, for
// example), it returns want: the program's own creation will tell.
//
// Implements: ibv_create_qp, as a query.
func (c *deviceContext) QPLimits(t verbs.QPType, want verbs.QPCap, windows bool) (verbs.QPCap, error) {
	l := &c.probed
	l.mu.Lock()
	defer l.mu.Unlock()
	key := limitsKey{t, want, windows}
	if got, ok := l.limits[key]; ok {
		return got, nil
	}
	got, e := want, syscall.Errno(0)
	err := c.probe(func(p *prober) {
		p.windows = windows
		got, e = p.fit(t, want)
	})
	switch {
	case err != nil:
		return want, err
	case refused(e):
		return want, opError("ibv_create_qp", c.label, syscall.EOPNOTSUPP, "%w: queue pairs of type %v", verbs.ErrNotSupported, t)
	case e != 0:
		return want, nil
	}
	if l.limits == nil || len(l.limits) == maxLimits {
		l.limits = map[limitsKey]verbs.QPCap{}
	}
	l.limits[key] = got
	return got, nil
}

// qpTypes returns the types of queue pairs that the device has. The first call makes one of each. A type whose
// creation fails for another reason (memory, for example) counts as there, and the next call tries again.
func (c *deviceContext) qpTypes() ([]verbs.QPType, error) {
	l := &c.probed
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.types != nil {
		return slices.Clone(l.types), nil
	}
	types := []verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTUD}
	if c.caps&verbs.CapXRC != 0 {
		types = append(types, verbs.QPTXRCSend)
	}
	unknown := false
	err := c.probe(func(p *prober) {
		types = slices.DeleteFunc(types, func(t verbs.QPType) bool {
			_, e := p.try(t, least(t))
			unknown = unknown || e != 0 && !refused(e)
			return refused(e)
		})
	})
	if err != nil {
		return nil, err
	}
	if slices.Contains(types, verbs.QPTXRCSend) {
		types = append(types, verbs.QPTXRCRecv)
	}
	if !unknown {
		l.types = types
	}
	return slices.Clone(types), nil
}
