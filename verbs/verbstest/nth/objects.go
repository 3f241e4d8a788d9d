package nth

import "github.com/verbena-rdma/verbena/verbs"

type pd struct {
	verbs.PD
	w *world
}

func (p *pd) Context() verbs.Context { return p.w.context(p.PD.Context()) }
func (p *pd) Close() error           { return p.w.close("ibv_dealloc_pd", p.PD) }

func (p *pd) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	if err := p.w.plan.fails("ibv_reg_mr", p.PD); err != nil {
		return nil, err
	}
	m, err := p.PD.RegMR(addr, length, iova, access)
	if err != nil {
		return nil, err
	}
	return &mr{MR: m, w: p.w}, nil
}

func (p *pd) AllocMW(t verbs.MWType) (verbs.MW, error) {
	if err := p.w.plan.fails("ibv_alloc_mw", p.PD); err != nil {
		return nil, err
	}
	m, err := p.PD.AllocMW(t)
	if err != nil {
		return nil, err
	}
	return &mw{MW: m, w: p.w}, nil
}

func (p *pd) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	if err := p.w.plan.fails("ibv_create_qp", p.PD); err != nil {
		return nil, err
	}
	in := innerInit(init)
	q, err := p.PD.CreateQP(in)
	if err != nil {
		return nil, err
	}
	init.Cap = in.Cap
	return p.w.qp(q), nil
}

func (p *pd) CreateSRQ(attr *verbs.SRQAttr) (verbs.SRQ, error) {
	if err := p.w.plan.fails("ibv_create_srq", p.PD); err != nil {
		return nil, err
	}
	in := *attr
	in.XRCD, in.CQ = innerXRCD(attr.XRCD), innerCQ(attr.CQ)
	s, err := p.PD.CreateSRQ(&in)
	if err != nil {
		return nil, err
	}
	in.XRCD, in.CQ = attr.XRCD, attr.CQ
	*attr = in
	return p.w.srq(s), nil
}

func (p *pd) CreateAH(attr *verbs.AHAttr) (verbs.AH, error) {
	if err := p.w.plan.fails("ibv_create_ah", p.PD); err != nil {
		return nil, err
	}
	a, err := p.PD.CreateAH(attr)
	if err != nil {
		return nil, err
	}
	return &ah{AH: a, w: p.w}, nil
}

type mr struct {
	verbs.MR
	w *world
}

func (m *mr) Close() error { return m.w.close("ibv_dereg_mr", m.MR) }

type mw struct {
	verbs.MW
	w *world
}

func (m *mw) Close() error { return m.w.close("ibv_dealloc_mw", m.MW) }

type ah struct {
	verbs.AH
	w *world
}

func (a *ah) Close() error { return a.w.close("ibv_destroy_ah", a.AH) }

type qp struct {
	verbs.QP
	w *world
}

func (q *qp) Context() verbs.Context { return q.w.context(q.QP.Context()) }
func (q *qp) Close() error           { return q.w.close("ibv_destroy_qp", q.QP) }

func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := q.w.plan.fails("ibv_modify_qp", q.QP); err != nil {
		return err
	}
	return q.QP.Modify(attr, mask)
}

func (q *qp) Query() (verbs.QPAttr, error) {
	if err := q.w.plan.fails("ibv_query_qp", q.QP); err != nil {
		return verbs.QPAttr{}, err
	}
	return q.QP.Query()
}

func (q *qp) InitAttr() verbs.QPInitAttr {
	a := q.QP.InitAttr()
	a.SendCQ, a.RecvCQ, a.SRQ = q.w.cq(a.SendCQ), q.w.cq(a.RecvCQ), q.w.srq(a.SRQ)
	return a
}

func (q *qp) AttachMcast(gid verbs.GID, lid uint16) error {
	if err := q.w.plan.fails("ibv_attach_mcast", q.QP); err != nil {
		return err
	}
	return q.QP.AttachMcast(gid, lid)
}

func (q *qp) DetachMcast(gid verbs.GID, lid uint16) error {
	if err := q.w.plan.fails("ibv_detach_mcast", q.QP); err != nil {
		return err
	}
	return q.QP.DetachMcast(gid, lid)
}

type srq struct {
	verbs.SRQ
	w *world
}

func (s *srq) Context() verbs.Context { return s.w.context(s.SRQ.Context()) }
func (s *srq) Close() error           { return s.w.close("ibv_destroy_srq", s.SRQ) }

func (s *srq) SetLimit(limit uint32) error {
	if err := s.w.plan.fails("ibv_modify_srq", s.SRQ); err != nil {
		return err
	}
	return s.SRQ.SetLimit(limit)
}

func (s *srq) Resize(maxWR uint32) error {
	if err := s.w.plan.fails("ibv_modify_srq", s.SRQ); err != nil {
		return err
	}
	return s.SRQ.Resize(maxWR)
}

func (s *srq) Query() (verbs.SRQAttr, error) {
	if err := s.w.plan.fails("ibv_query_srq", s.SRQ); err != nil {
		return verbs.SRQAttr{}, err
	}
	a, err := s.SRQ.Query()
	a.XRCD, a.CQ = s.w.xrcd(a.XRCD), s.w.cq(a.CQ)
	return a, err
}

type xrcd struct {
	verbs.XRCD
	w *world
}

func (x *xrcd) Context() verbs.Context { return x.w.context(x.XRCD.Context()) }
func (x *xrcd) Close() error           { return x.w.close("ibv_close_xrcd", x.XRCD) }

func (x *xrcd) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	if err := x.w.plan.fails("ibv_create_qp_ex", x.XRCD); err != nil {
		return nil, err
	}
	in := innerInit(init)
	q, err := x.XRCD.CreateQP(in)
	if err != nil {
		return nil, err
	}
	init.Cap = in.Cap
	return x.w.qp(q), nil
}

func (x *xrcd) OpenQP(num uint32, userData uint64) (verbs.QP, error) {
	if err := x.w.plan.fails("ibv_open_qp", x.XRCD); err != nil {
		return nil, err
	}
	q, err := x.XRCD.OpenQP(num, userData)
	if err != nil {
		return nil, err
	}
	return x.w.qp(q), nil
}
