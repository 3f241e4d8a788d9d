package reactor

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Capacities are the capacities of a queue, as in QueueConfig.
type Capacities struct {
	SendDepth, RecvDepth, MaxSGE, RecvSGE, Inline int
}

// cap returns the capacities of the queue pair for c.
func (c QueueConfig) cap() verbs.QPCap {
	a := verbs.QPCap{MaxSendWR: uint32(c.sends()), MaxSendSGE: uint32(c.MaxSGE + 1), MaxInlineData: uint32(c.deviceInline)} // 1 for Payload.Header
	if c.RecvDepth > 0 {
		a.MaxRecvWR, a.MaxRecvSGE = uint32(c.RecvDepth), uint32(c.RecvSGE)
	}
	return a
}

// fit lowers the capacities of c to what the device grants, but not below c.Least.
func (r *Reactor) fit(c *QueueConfig) error {
	if c.receiving {
		return r.fitShared(c)
	}
	want := c.cap()
	got, err := r.ctx.QPLimits(c.Type, want, c.Windows)
	if errors.Is(err, verbs.ErrNotSupported) {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err != nil || got == want {
		return err
	}
	recvs := func(least int) int {
		if want.MaxRecvWR == 0 { // there are no receives to lower
			return 0
		}
		return max(least, 1)
	}
	for _, f := range []struct {
		name        string
		v           *int
		most, least int
	}{
		{"MaxSGE", &c.MaxSGE, int(got.MaxSendSGE) - 1, max(c.Least.MaxSGE, 1)},
		{"RecvSGE", &c.RecvSGE, int(got.MaxRecvSGE), recvs(c.Least.RecvSGE)},
		{"Inline", &c.deviceInline, int(got.MaxInlineData), c.Least.Inline},
		{"SendDepth", &c.SendDepth, int(got.MaxSendWR) - (c.sends() - c.SendDepth), max(c.Least.SendDepth, 1)},
		{"RecvDepth", &c.RecvDepth, int(got.MaxRecvWR), recvs(c.Least.RecvDepth)},
	} {
		if f.most < f.least {
			return fmt.Errorf("%w: %s is %d, want at most %d, which is what %s grants a queue pair of type %v (asked for: %+v, largest: %+v)",
				ErrConfig, f.name, *f.v, f.most, r.ctx.Device().Name, c.Type, want, got)
		}
		*f.v = min(*f.v, f.most)
	}
	c.SignalEvery = min(c.SignalEvery, c.SendDepth)
	return nil
}

// fitShared is fit for the queue of a SharedRecv.
func (r *Reactor) fitShared(c *QueueConfig) error {
	most := r.device.MaxSRQSGE
	if most > 0 && most < c.Least.MaxSGE {
		return fmt.Errorf("%w: a shared receive of %d elements, want at most %d, the limit of %s", ErrConfig, c.MaxSGE, most, r.ctx.Device().Name)
	}
	if most > 0 {
		c.MaxSGE = min(c.MaxSGE, most)
	}
	c.RecvSGE = c.MaxSGE
	return nil
}
