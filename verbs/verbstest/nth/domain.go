package nth

import "github.com/verbena-rdma/verbena/verbs"

// The newer calls: thread domains, on-demand memory and memory of other devices, further
// attributes of a queue pair.

type td struct {
	verbs.TD
	w *world
}

func (t *td) Context() verbs.Context { return t.w.context(t.TD.Context()) }
func (t *td) Close() error           { return t.w.close("ibv_dealloc_td", t.TD) }

func (c *context) AllocTD() (verbs.TD, error) {
	if err := c.w.plan.fails("ibv_alloc_td", c.Context); err != nil {
		return nil, err
	}
	t, err := c.Context.AllocTD()
	if err != nil {
		return nil, err
	}
	return &td{TD: t, w: c.w}, nil
}

func (p *pd) AllocParentDomain(t verbs.TD) (verbs.PD, error) {
	if err := p.w.plan.fails("ibv_alloc_parent_domain", p.PD); err != nil {
		return nil, err
	}
	if x, ok := t.(*td); ok {
		t = x.TD
	}
	own, err := p.PD.AllocParentDomain(t)
	if err != nil {
		return nil, err
	}
	return &pd{PD: own, w: p.w}, nil
}

func (p *pd) region(op string, reg func() (verbs.MR, error)) (verbs.MR, error) {
	if err := p.w.plan.fails(op, p.PD); err != nil {
		return nil, err
	}
	m, err := reg()
	if err != nil {
		return nil, err
	}
	return &mr{MR: m, w: p.w}, nil
}

func (p *pd) RegImplicit(access verbs.AccessFlags) (verbs.MR, error) {
	return p.region("ibv_reg_mr", func() (verbs.MR, error) { return p.PD.RegImplicit(access) })
}

func (p *pd) RegDMABuf(fd int, offset, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	return p.region("ibv_reg_dmabuf_mr", func() (verbs.MR, error) { return p.PD.RegDMABuf(fd, offset, length, iova, access) })
}

func (p *pd) AdviseMR(a verbs.Advice, flags verbs.AdviseFlags, list []verbs.SGE) error {
	if err := p.w.plan.fails("ibv_advise_mr", p.PD); err != nil {
		return err
	}
	return p.PD.AdviseMR(a, flags, list)
}

func (q *qp) QueryECE() (verbs.ECE, error) {
	if err := q.w.plan.fails("ibv_query_ece", q.QP); err != nil {
		return verbs.ECE{}, err
	}
	return q.QP.QueryECE()
}

func (q *qp) SetECE(want verbs.ECE) (verbs.ECE, error) {
	if err := q.w.plan.fails("ibv_set_ece", q.QP); err != nil {
		return verbs.ECE{}, err
	}
	return q.QP.SetECE(want)
}
