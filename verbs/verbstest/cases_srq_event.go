package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var srqEventCases = []Spec{
	{Name: "srq_limit_event_comes_below_the_limit_once", Rule: "semantics 33; IBTA 10.2.9.2; rxe get_srq_wqe", needs: srqOnly, run: srqLimitOnce},
	{Name: "srq_limit_can_be_armed_again", Rule: "semantics 33; ibv_modify_srq(3)", needs: srqOnly, run: srqLimitAgain},
	{Name: "srq_limit_zero_raises_nothing", Rule: "ibv_modify_srq(3): 0 disarms", needs: srqOnly, run: srqLimitZero},
	{Name: "srq_limit_at_creation_is_armed", Rule: "contract: SRQAttr.Limit; ibv_create_srq(3)", needs: srqOnly, run: srqLimitCreate},
	{Name: "srq_limit_above_its_size_is_refused", Rule: "ibv_modify_srq(3): EINVAL", needs: srqOnly, run: srqLimitHigh},
	{Name: "srq_last_wqe_reached_when_a_queue_pair_fails", Rule: "semantics 33; IBTA 11.6.3.3", needs: srqOnly.with(func(n *needs) { n.lastWQE = true }), run: srqLastWQE},
	{Name: "srq_unacknowledged_event_keeps_it", Rule: "semantics 35; ibv_destroy_srq(3)", needs: srqOnly, run: srqUnacked},
}

// drainTo sends from A until n receives of the shared queue are left.
func (c *Case) drainTo(a, b *QP, src *Region, left *int, n int) {
	c.t.Helper()
	for *left > n {
		a.send(sendOf(uint64(*left), src.all()))
		a.scq.one()
		b.rcq.one()
		*left--
	}
}

func (s *SRQ) limitEvents(want int, why string) {
	s.end.c.t.Helper()
	if n := s.end.count(s.SRQ, verbs.EventSRQLimitReached); n != want {
		s.end.c.failf("%s: %d SRQ_LIMIT_REACHED, want %d", why, n, want)
	}
}

// The limit that query_srq reads after the event is left open: rxe reads 0, an adapter may read
// the value set.
func srqLimitOnce(c *Case) {
	as, bs, s := c.shared(1, 8)
	left, src := 6, c.A.region(8)
	s.fillWith(left, 8)
	c.must(s.SetLimit(3), "modify_srq with a limit of 3")
	c.drainTo(as[0], bs[0], src, &left, 3)
	s.limitEvents(0, "three are left, that is not below three")
	c.drainTo(as[0], bs[0], src, &left, 2)
	s.limitEvents(1, "two are left, the limit is three")
	c.drainTo(as[0], bs[0], src, &left, 0)
	s.limitEvents(1, "the limit strikes once")
	s.fillWith(5, 8)
	left = 5
	c.drainTo(as[0], bs[0], src, &left, 0)
	s.limitEvents(1, "posting does not arm it")
}

func srqLimitAgain(c *Case) {
	as, bs, s := c.shared(1, 8)
	src := c.A.region(8)
	for round := range 3 {
		left := 4
		s.fillWith(left, 8)
		c.must(s.SetLimit(2), "modify_srq")
		s.limitEvents(round, "four are left")
		c.drainTo(as[0], bs[0], src, &left, 1)
		s.limitEvents(round+1, "one is left")
		c.drainTo(as[0], bs[0], src, &left, 0)
	}
}

func srqLimitZero(c *Case) {
	as, bs, s := c.shared(1, 8)
	left, src := 4, c.A.region(8)
	s.fillWith(left, 8)
	c.must(s.SetLimit(3), "modify_srq with a limit of 3")
	c.must(s.SetLimit(0), "modify_srq with no limit")
	c.drainTo(as[0], bs[0], src, &left, 0)
	s.limitEvents(0, "the limit was disarmed")
}

func srqLimitCreate(c *Case) {
	s := c.B.srqOf(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1, Limit: 2})
	o := c.defaults()
	a := c.A.newQP(o, psnA)
	o.srq = s
	b := c.B.newQP(o, psnB)
	c.connect(a, b)
	left := 4
	s.fillWith(left, 8)
	c.drainTo(a, b, c.A.region(8), &left, 1)
	if n := s.end.count(s.SRQ, verbs.EventSRQLimitReached); n == 0 {
		// ibv_create_srq(3) ignores the limit; in the contract the attribute arms it. A provider
		// that cannot must report that.
		got, err := s.Query()
		c.must(err, "query_srq")
		if got.Limit != 0 {
			c.failf("the limit given at creation reads %d and raised no event", got.Limit)
		}
	}
}

func srqLimitHigh(c *Case) {
	s := c.A.srq(4)
	got, err := s.Query()
	c.must(err, "query_srq")
	c.refused(s.SetLimit(got.MaxWR+1), "a limit above the size", verbs.ErrInvalid, syscall.EINVAL)
}

func srqLastWQE(c *Case) {
	_, bs, s := c.shared(2, 4)
	s.fillWith(2, 8)
	bs[0].to(verbs.QPSErr)
	c.B.untilEvent(bs[0].QP, verbs.EventQPLastWQEReached)
	if n := c.B.count(bs[0].QP, verbs.EventQPLastWQEReached); n != 1 {
		c.failf("LAST_WQE_REACHED came %d times", n)
	}
	if n := c.B.count(bs[1].QP, verbs.EventQPLastWQEReached); n != 0 {
		c.failf("LAST_WQE_REACHED came for a queue pair that works")
	}
}

func srqUnacked(c *Case) {
	as, bs, s := c.shared(1, 4)
	left := 2
	s.fillWith(left, 8)
	c.must(s.SetLimit(2), "modify_srq")
	c.drainTo(as[0], bs[0], c.A.region(8), &left, 1)
	ev := c.B.takeEvent(s.SRQ, verbs.EventSRQLimitReached)
	c.must(bs[0].Close(), "destroy_qp")
	c.refused(s.Close(), "closing a shared queue with an unacknowledged event", verbs.ErrBusy)
	c.B.ctx.Async().Ack(ev)
	c.must(s.Close(), "closing the shared queue after the acknowledgement")
}
