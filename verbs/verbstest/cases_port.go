package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var devicesOnly = needs{devices: true, ops: sendWrite.ops}

var portCases = []Spec{
	{Name: "port_down_and_up_are_reported", Rule: "ibv_get_async_event(3): PORT_ERR, PORT_ACTIVE; ibv_query_port(3)", needs: devicesOnly, run: portEvents},
	{Name: "port_down_changes_no_queue_pair", Rule: "IBTA 11.6.3.4: an unaffiliated event", needs: devicesOnly, run: portKeeps},
	{Name: "port_down_for_too_long_is_retry_exceeded", Rule: "IBTA 9.9.2.1.1; semantics 34", needs: devicesOnly, run: portTooLong},
	{Name: "port_down_loses_datagrams", Rule: "IBTA 9.8.3: unreliable", needs: devicesOnly.with(func(n *needs) { n.kinds, n.ah = []verbs.QPType{verbs.QPTUD}, true }), run: portDatagrams},
	{Name: "port_event_reaches_every_context", Rule: "ibv_get_async_event(3); semantics 35", needs: devicesOnly, run: portEveryContext},
}

func portEvents(c *Case) {
	e, p := c.spare()
	defer p.port(true)
	state := func(want verbs.PortState) {
		c.t.Helper()
		got, err := e.ctx.QueryPort(1)
		c.must(err, "query_port")
		if got.State != want {
			c.failf("the port is %v, want %v", got.State, want)
		}
	}
	state(verbs.PortActive)
	p.port(false)
	if ev := e.untilEvent(nil, verbs.EventPortErr); ev.Port != 1 {
		c.failf("PORT_ERR names port %d", ev.Port)
	}
	state(verbs.PortDown)
	p.port(true)
	if ev := e.untilEvent(nil, verbs.EventPortActive); ev.Port != 1 {
		c.failf("PORT_ACTIVE names port %d", ev.Port)
	}
	state(verbs.PortActive)
}

// patient configures a link that survives an interruption.
func patient(o *opts) { o.timeout, o.retry = fastTimeout+4, maxRetry }

func portKeeps(c *Case) {
	e, p := c.spare()
	defer p.port(true)
	a, b := c.linkOf(e, c.B, patient)
	src, dst := e.region(64).fill(1), c.B.region(64).poison()
	p.port(false)
	a.send(writeOf(1, dst, 0, src.all()))
	c.untouched(dst.bytes(), "the target of a WRITE through a port that is down")
	if s, t := a.state(), b.state(); s != verbs.QPSRTS || t != verbs.QPSRTS {
		c.failf("with a port down the queue pairs are in %v and %v", s, t)
	}
	p.port(true)
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(dst.bytes(), src.bytes(), "a WRITE that waited for the port")
}

func portTooLong(c *Case) {
	e, p := c.spare()
	defer p.port(true)
	a, b := c.linkOf(e, c.B, func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
	r := e.region(64)
	p.port(false)
	a.send(sendOf(1, r.all()), sendOf(2, r.all()))
	a.failed(a.scq.one(), 1, verbs.WCRetryExcErr)
	a.flushed(a.scq, 2)
	b.send(sendOf(3, c.B.region(8).all()))
	b.failed(b.scq.one(), 3, verbs.WCRetryExcErr)
}

func portDatagrams(c *Case) {
	e, p := c.spare()
	defer p.port(true)
	a, b, ah := e.ud(), c.B.ud(), e.ah(c.B.gid)
	src, dst := e.region(8), c.B.region(48)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	p.port(false)
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	c.settle()
	p.port(true)
	b.rcq.none("the port was down")
	a.send(sendOf(2, src.all()).to(ah, b.Num(), udKey))
	b.datagram(b.rcq.one(), 9, 8, a)
}

func portEveryContext(c *Case) {
	e, p := c.spare()
	defer p.port(true)
	f, _ := c.spare()
	p.port(false)
	e.untilEvent(nil, verbs.EventPortErr)
	f.untilEvent(nil, verbs.EventPortErr)
	if n := e.count(nil, verbs.EventPortErr); n != 1 {
		c.failf("PORT_ERR came %d times", n)
	}
	if n := c.B.count(nil, verbs.EventPortErr); n != 0 {
		c.failf("PORT_ERR came to another device")
	}
}
