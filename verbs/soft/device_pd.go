package soft

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// protectionDomain is a PD: objects of one domain may be used together.
type protectionDomain struct {
	ctx    *deviceContext
	number uint32
	closed atomic.Bool // set by Close under the port's token

	mrs, mws, qps, srqs, ahs int // alive; under the port's token
}

var _ verbs.PD = (*protectionDomain)(nil)

// Context returns the context of the domain.
func (p *protectionDomain) Context() verbs.Context { return p.ctx }

// String returns the domain's name.
func (p *protectionDomain) String() string {
	return fmt.Sprintf("PD %d of %s", p.number, p.ctx.dev.cfg.Name)
}

// exclusive is deviceContext.exclusive on an open domain.
func (p *protectionDomain) exclusive(op string, fn func()) error {
	gone := false
	if err := p.ctx.exclusive(op, func() {
		if gone = p.closed.Load(); !gone {
			fn()
		}
	}); err != nil {
		return err
	}
	if gone {
		return opError(op, p.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
	}
	return nil
}

// Close frees the domain. It returns [verbs.ErrBusy] while the domain has living objects.
//
// Implements: ibv_dealloc_pd.
func (p *protectionDomain) Close() (err error) {
	const op = "ibv_dealloc_pd"
	if p.closed.Load() {
		return nil
	}
	if e := p.ctx.closing(op, func() {
		if p.closed.Load() {
			return
		}
		var alive []string
		if p.mrs > 0 {
			alive = append(alive, count(p.mrs, "memory regions"))
		}
		if p.mws > 0 {
			alive = append(alive, count(p.mws, "memory windows"))
		}
		if p.qps > 0 {
			alive = append(alive, count(p.qps, "queue pairs"))
		}
		if p.srqs > 0 {
			alive = append(alive, count(p.srqs, "shared receive queues"))
		}
		if p.ahs > 0 {
			alive = append(alive, count(p.ahs, "address handles"))
		}
		if alive != nil {
			err = opError(op, p.String(), syscall.EBUSY, "%w: %s alive", verbs.ErrBusy, strings.Join(alive, " and "))
			return
		}
		p.closed.Store(true)
		p.ctx.counts.PD--
	}); e != nil {
		return e
	}
	return err
}
