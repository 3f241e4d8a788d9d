package verbstest

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

var asyncCases = []Spec{
	{Name: "async_unacknowledged_event_keeps_a_queue_pair", Rule: "semantics 35; ibv_destroy_qp(3)", run: asyncKeepsQP},
	{Name: "async_unacknowledged_event_keeps_a_completion_queue", Rule: "semantics 35, 29; ibv_destroy_cq(3)", needs: needs{ops: sendOnly.ops, overrun: true}, run: asyncKeepsCQ},
	{Name: "async_untaken_event_of_a_closed_object_is_not_delivered", Rule: "semantics 35; ib_uverbs: events of a destroyed object are removed", run: asyncGone},
	{Name: "async_channel_wakes_a_sleeper", Rule: "contract: Source; ibv_get_async_event(3)", run: asyncWakes},
	{Name: "async_event_goes_to_the_context_of_its_object", Rule: "ibv_get_async_event(3): per context", run: asyncOwnContext},
	{Name: "async_names_the_object_and_nothing_else", Rule: "contract: AsyncEvent; ibv_get_async_event(3)", run: asyncNames},
	{Name: "async_invalid_request_is_reported_at_the_responder", Rule: "IBTA 11.6.3.3: QP_REQ_ERR; semantics 35", needs: needs{ops: writeOnly.ops, access: true}, run: asyncReqErr},
	{Name: "async_sq_drained_comes_once_per_request", Rule: "IBTA 11.6.3.3; ibv_modify_qp(3): en_sqd_async_notify", run: asyncDrainedOnce},
}

// drain makes a queue pair raise SQ_DRAINED, which all devices support.
func (q *QP) drain() {
	q.c.t.Helper()
	q.c.must(q.Modify(&verbs.QPAttr{State: verbs.QPSSQD, EnSQDAsyncNotify: true}, verbs.QPMState|verbs.QPMEnSQDAsyncNotify), "RTS to SQD with a notification")
}

func asyncKeepsQP(c *Case) {
	a, _ := c.link()
	a.drain()
	ev := c.A.takeEvent(a.QP, verbs.EventSQDrained)
	before := c.A.ctx.Objects()
	c.refused(a.Close(), "closing a queue pair with an unacknowledged event", verbs.ErrBusy)
	if got := c.A.ctx.Objects(); got != before {
		c.failf("a Close that was refused changed the counts from %v to %v", before, got)
	}
	c.A.ctx.Async().Ack(ev)
	c.must(a.Close(), "closing the queue pair after the acknowledgement")
}

func asyncKeepsCQ(c *Case) {
	small, b, _ := c.overrunAt(c.B)
	ev := c.B.takeEvent(small.CQ, verbs.EventCQErr)
	c.B.drainAsync()
	c.must(b.Close(), "destroy_qp")
	c.refused(small.Close(), "closing a completion queue with an unacknowledged event", verbs.ErrBusy)
	c.B.ctx.Async().Ack(ev)
	c.must(small.Close(), "closing the completion queue after the acknowledgement")
}

// Closing an object whose event is not taken must not wait, nor leave the event.
func asyncGone(c *Case) {
	a, _ := c.link()
	a.drain()
	c.until("SQD must drain an empty send queue", func() bool { at, _ := a.Query(); return !at.SQDraining })
	c.settle()
	c.must(a.Close(), "closing a queue pair whose event nobody has taken")
	c.settle()
	for {
		ev, ok, err := c.A.ctx.Async().Get()
		c.must(err, "get_async_event")
		if !ok {
			return
		}
		c.A.ctx.Async().Ack(ev)
		if ev.QP == a.QP {
			c.failf("%v came for a queue pair that was closed", ev.Type)
		}
	}
}

func asyncWakes(c *Case) {
	a, _ := c.link()
	p, err := sys.NewPoller()
	c.must(err, "making a poller")
	c.defers(p.Close)
	c.must(p.Attach(c.A.ctx.Async(), sleeperKey), "attaching the channel")
	for sleep(c, p, time.Millisecond) { // a poller may wake spuriously
		c.A.drainAsync()
	}
	a.drain()
	c.settle()
	if !sleep(c, p, wakesWithin) {
		c.failf("an asynchronous event woke nobody")
	}
	c.A.untilEvent(a.QP, verbs.EventSQDrained)
	c.must(p.Detach(sleeperKey), "detaching the channel")
}

func asyncOwnContext(c *Case) {
	ctx, err := c.A.ep.Provider.Open(c.A.ctx.Device().Name)
	c.must(err, "opening the device again")
	c.defers(ctx.Close)
	a, _ := c.link()
	a.drain()
	c.A.untilEvent(a.QP, verbs.EventSQDrained)
	if ev, ok, err := ctx.Async().Get(); ok || err != nil {
		if ok {
			ctx.Async().Ack(ev)
		}
		c.failf("the other context of the device got %v (%v)", ev.Type, err)
	}
}

func asyncNames(c *Case) {
	a, _ := c.link()
	a.drain()
	ev := c.A.takeEvent(a.QP, verbs.EventSQDrained)
	c.A.ctx.Async().Ack(ev)
	if ev.CQ != nil || ev.SRQ != nil || ev.Port != 0 {
		c.failf("an event about a queue pair names more: %+v", ev)
	}
}

// A WRITE to a queue pair without the remote write permission is an invalid request.
func asyncReqErr(c *Case) {
	a, b := c.link(func(o *opts) { o.access = verbs.AccessLocalWrite })
	src, dst := c.A.region(8), c.B.region(8)
	a.send(writeOf(1, dst, 0, src.all()))
	a.failed(a.scq.one(), 1, notEnabled...)
	c.B.untilEvent(b.QP, verbs.EventQPReqErr, verbs.EventQPAccessErr)
}

func asyncDrainedOnce(c *Case) {
	a, _ := c.link()
	for i := range 3 {
		a.drain()
		c.A.untilEvent(a.QP, verbs.EventSQDrained)
		if n := c.A.count(a.QP, verbs.EventSQDrained); n != i+1 {
			c.failf("SQ_DRAINED was asked for %d times and came %d times", i+1, n)
		}
		a.to(verbs.QPSRTS)
		a.to(verbs.QPSSQD) // without requesting the event
		if n := c.A.count(a.QP, verbs.EventSQDrained); n != i+1 {
			c.failf("SQ_DRAINED came though it was not asked for")
		}
		a.to(verbs.QPSRTS)
	}
}
