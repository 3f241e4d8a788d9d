package verbstest

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

var cmRemovalOnly = needs{cm: true, devices: true, ops: sendWrite.ops}

var cmRemovalCases = []Spec{
	{Name: "cm_device_removal_reaches_every_identifier_of_the_device", Rule: "semantics 20; rdma_get_cm_event(3): DEVICE_REMOVAL; kernel cma_process_remove", needs: cmRemovalOnly, run: cmRemovalAll},
	{Name: "cm_device_removal_spares_listeners_on_every_device", Rule: "kernel cma_process_remove: only those bound to the device", needs: cmRemovalOnly, run: cmRemovalWildcard},
	{Name: "cm_identifier_of_a_removed_device_can_only_be_closed", Rule: "semantics 20: the identifier must be destroyed", needs: cmRemovalOnly, run: cmRemovalClose},
	{Name: "cm_peer_of_a_removed_device_notices_by_its_retries", Rule: "semantics 20; IBTA 9.9.2.1.1", needs: cmRemovalOnly, run: cmRemovalPeer},
}

// dialFrom connects an identifier of e to a listener of B.
func (c *Case) dialFrom(e *End) *conn {
	c.t.Helper()
	k := &conn{ma: e.cm(), mb: c.B.cm()}
	_, at := k.mb.listen(0x77)
	c.dialTo(k, at, "", "")
	return k
}

func cmRemovalAll(c *Case) {
	e, p := c.spare()
	k := c.dialFrom(e)
	m := e.cm()
	l, _ := m.listen(0)
	k.ma.id(0) // bound to no device
	p.remove()
	if ev := k.ma.take(verbs.CMDeviceRemoval); ev.ID != k.ida {
		c.failf("DEVICE_REMOVAL came for %v, bound to the device is %v", ev.ID, k.ida)
	}
	k.ma.quiet("it comes once, and not for an identifier that is bound to no device")
	if ev := m.take(verbs.CMDeviceRemoval); ev.ID != l {
		c.failf("DEVICE_REMOVAL came for %v, bound to the device is the listener %v", ev.ID, l)
	}
}

func cmRemovalWildcard(c *Case) {
	e, p := c.spare()
	m := e.cm()
	any, bound := m.id(1), m.id(2)
	c.must(any.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)), "bind_addr to every device")
	c.must(any.Listen(4), "listen")
	c.must(bound.Bind(netip.AddrPortFrom(e.addr, 0)), "bind_addr to the spare device")
	c.must(bound.Listen(4), "listen")
	p.remove()
	if ev := m.take(verbs.CMDeviceRemoval); ev.ID != bound {
		c.failf("DEVICE_REMOVAL came for %v, bound to the device is %v", ev.ID, bound)
	}
	m.quiet("a listener on every device stays")
}

func cmRemovalClose(c *Case) {
	e, p := c.spare()
	k := c.dialFrom(e)
	p.remove()
	k.ma.take(verbs.CMDeviceRemoval)
	before := e.ctx.Objects().QP
	c.until("closing an identifier of a removed device", func() bool { return k.ida.Close() == nil })
	if n := e.ctx.Objects().QP; n != before-1 {
		c.failf("closing the identifier left %d of %d queue pairs", n, before)
	}
}

func cmRemovalPeer(c *Case) {
	e, p := c.spare()
	k := c.dialFrom(e)
	p.remove()
	k.b.send(sendOf(1, c.B.region(8).all()))
	k.b.failed(k.b.scq.one(), 1, verbs.WCRetryExcErr)
	k.b.untilState(verbs.QPSErr)
	c.must(k.idb.Disconnect(), "disconnect of the end that is left")
}
