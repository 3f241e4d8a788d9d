package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// The lifetime of shared receive queues: creation, queries, resize, close.

func srqBusy(c *Case) {
	_, bs, s := c.shared(2, 4)
	c.refused(s.Close(), "closing a shared queue with two queue pairs", verbs.ErrBusy)
	c.must(bs[0].Close(), "destroy_qp")
	c.refused(s.Close(), "closing a shared queue with one queue pair", verbs.ErrBusy)
	c.must(bs[1].Close(), "destroy_qp")
	c.must(s.Close(), "closing a shared queue without queue pairs")
	c.must(s.Close(), "closing it again")
	if n, err := s.tryRecv(RR{id: 1}); n != 0 || err == nil {
		c.failf("a destroyed shared queue took %d receives", n)
	}
}

func srqCounted(c *Case) {
	before := c.A.ctx.Objects()
	pd := c.A.newPD()
	s, err := pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 4, MaxSGE: 1, UserData: 0xabcd})
	c.must(err, "create_srq")
	c.defers(s.Close)
	if got := c.A.ctx.Objects(); got.SRQ != before.SRQ+1 {
		c.failf("after create_srq the context counts %v, before it %v", got, before)
	}
	if s.UserData() != 0xabcd || s.Context() != c.A.ctx || s.Num() != 0 {
		c.failf("user data 0xabcd came back as %#x; context %v, number %d", s.UserData(), s.Context(), s.Num())
	}
	c.refused(pd.Close(), "closing a domain with a shared queue", verbs.ErrBusy)
	c.must(s.Close(), "destroy_srq")
	c.must(pd.Close(), "closing the domain after its shared queue")
	if got := c.A.ctx.Objects(); got != before {
		c.failf("after destroy_srq the context counts %v, before %v", got, before)
	}
}

func srqLimits(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	for what, attr := range map[string]verbs.SRQAttr{
		"with no receives":                       {MaxWR: 0, MaxSGE: 1},
		"with more receives than the device has": {MaxWR: uint32(d.MaxSRQWR) + 1, MaxSGE: 1},
		"with more elements than the device has": {MaxWR: 1, MaxSGE: uint32(d.MaxSRQSGE) + 1},
		"with 2^32-1 receives":                   {MaxWR: ^uint32(0), MaxSGE: 1},
		"with a completion queue and no XRC":     {MaxWR: 1, MaxSGE: 1, CQ: c.A.cq(4, nil).CQ},
	} {
		s, err := c.A.pd.CreateSRQ(&attr)
		if err == nil {
			c.defers(s.Close)
		}
		c.refused(err, "create_srq "+what)
	}
}

func srqQuery(c *Case) {
	attr := verbs.SRQAttr{MaxWR: 5, MaxSGE: 1}
	s := c.A.srqOf(attr)
	got, err := s.Query()
	c.must(err, "query_srq")
	if got.MaxWR < 5 || got.MaxSGE < 1 || got.Limit != 0 {
		c.failf("asked for 5 receives of 1 element and no limit, query_srq reads %+v", got)
	}
	c.must(s.SetLimit(3), "modify_srq with a limit")
	if got, err = s.Query(); err != nil || got.Limit != 3 {
		c.failf("the limit was set to 3, query_srq reads %+v (%v)", got, err)
	}
}

func srqResize(c *Case) {
	as, bs, s := c.shared(1, 4)
	s.fillWith(4, 8)
	c.must(s.Resize(64), "modify_srq to 64 receives")
	got, err := s.Query()
	c.must(err, "query_srq")
	if got.MaxWR < 64 {
		c.failf("a shared queue resized to 64 receives has %d", got.MaxWR)
	}
	for i := range 10 {
		s.recv(RR{id: uint64(100 + i), sg: sg(c.B.region(8).all())})
	}
	c.refused(s.Resize(2), "modify_srq below what is posted", verbs.ErrInvalid, syscall.EINVAL)
	src, seen := c.A.region(8), map[uint64]bool{}
	for i := range 14 {
		as[0].send(sendOf(uint64(i), src.all()))
		as[0].scq.one()
		bs[0].fromSRQ(bs[0].rcq.one(), verbs.WCRecv, 8, seen)
	}
}
