package nth

import "github.com/verbena-rdma/verbena/verbs"

type compChannel struct {
	verbs.CompChannel
	w *world
}

func (c *compChannel) Close() error { return c.w.close("ibv_destroy_comp_channel", c.CompChannel) }

func (c *compChannel) GetEvent() (verbs.CQ, bool, error) {
	if err := c.w.plan.fails("ibv_get_cq_event", c.CompChannel); err != nil {
		return nil, false, err
	}
	q, ok, err := c.CompChannel.GetEvent()
	return c.w.cq(q), ok, err
}

type cq struct {
	verbs.CQ
	w *world
}

func (c *cq) Context() verbs.Context { return c.w.context(c.CQ.Context()) }
func (c *cq) Close() error           { return c.w.close("ibv_destroy_cq", c.CQ) }

func (c *cq) Resize(cqe int) error {
	if err := c.w.plan.fails("ibv_resize_cq", c.CQ); err != nil {
		return err
	}
	return c.CQ.Resize(cqe)
}

type async struct {
	verbs.AsyncChannel
	c *context
}

func (a *async) Get() (verbs.AsyncEvent, bool, error) {
	if err := a.c.w.plan.fails("ibv_get_async_event", a.c.Context); err != nil {
		return verbs.AsyncEvent{}, false, err
	}
	ev, ok, err := a.AsyncChannel.Get()
	ev.CQ, ev.QP, ev.SRQ = a.c.w.cq(ev.CQ), a.c.w.qp(ev.QP), a.c.w.srq(ev.SRQ)
	return ev, ok, err
}

func (a *async) Ack(ev verbs.AsyncEvent) {
	ev.CQ, ev.QP, ev.SRQ = innerCQ(ev.CQ), innerQP(ev.QP), innerSRQ(ev.SRQ)
	a.AsyncChannel.Ack(ev)
}
