package verbstest

import (
	"net/netip"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var cmRefusalCases = []Spec{
	{Name: "cm_reject_carries_private_data", Rule: "rdma_reject(3): 148 bytes", needs: cmOnly, run: cmReject},
	{Name: "cm_closing_an_unanswered_request_rejects_it", Rule: "semantics 8; rdma_destroy_id(3)", needs: cmOnly, run: cmCloseRequest},
	{Name: "cm_nobody_listening_is_rejected", Rule: "IBTA 12.6.7: reason 8, invalid service ID", needs: cmOnly, run: cmNobody},
	{Name: "cm_closed_listener_is_nobody", Rule: "rdma_destroy_id(3)", needs: cmOnly, run: cmListenerGone},
	{Name: "cm_too_much_private_data_is_refused", Rule: "semantics 18; rdma_connect(3)", needs: cmOnly, run: cmTooMuch},
	{Name: "cm_port_in_use_is_refused", Rule: "rdma_bind_addr(3): EADDRINUSE", needs: cmOnly, run: cmPortInUse},
	{Name: "cm_foreign_address_is_refused", Rule: "rdma_bind_addr(3): EADDRNOTAVAIL, ENODEV", needs: cmOnly, run: cmForeign},
	{Name: "cm_calls_out_of_order_are_refused", Rule: "rdma_cm(7): EINVAL", needs: cmOnly, run: cmOrder},
	{Name: "cm_unacknowledged_event_keeps_the_identifier", Rule: "semantics 18, 27", needs: cmOnly, run: cmUnacked},
	{Name: "cm_channel_with_identifiers_is_busy", Rule: "rdma_destroy_event_channel(3)", needs: cmOnly, run: cmChannelBusy},
	{Name: "cm_partition_is_unreachable", Rule: "rdma_get_cm_event(3): UNREACHABLE", needs: needs{cm: true, faults: true, clock: true}, run: cmPartition},
}

// request connects from A to B and returns B's unanswered request with the other objects.
func (c *Case) request(private string) (ma, mb *CM, ida, idb verbs.CMID, a *QP) {
	c.t.Helper()
	ma, mb = c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	ida = ma.resolved(at)
	a = ma.qp(ida)
	c.must(ida.Connect(c.connParam(private)), "connect")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	return ma, mb, ida, req.ID, a
}

func cmReject(c *Case) {
	for _, why := range []string{"", "no", strings.Repeat("n", verbs.MaxPrivateReject)} {
		ma, mb, _, idb, a := c.request("ask")
		c.must(idb.Reject([]byte(why)), "reject")
		ev := ma.take(verbs.CMRejected)
		if ev.Status != verbs.RejConsumer || !startsWith(ev.Conn.PrivateData, why) {
			c.failf("a reject with %q arrived with status %d and %q", why, ev.Status, ev.Conn.PrivateData)
		}
		if s := a.state(); s == verbs.QPSRTS || s == verbs.QPSRTR {
			c.failf("the queue pair of a rejected request is in %v", s)
		}
		ma.quiet("the request was rejected")
		mb.quiet("the request was rejected")
	}
}

func cmCloseRequest(c *Case) {
	ma, _, _, idb, _ := c.request("")
	c.until("closing an unanswered request", func() bool { return idb.Close() == nil })
	ev := ma.take(verbs.CMRejected)
	if ev.Status != verbs.RejConsumer {
		c.failf("a request whose identifier was closed is rejected with reason %d", ev.Status)
	}
}

func cmNobody(c *Case) {
	ma := c.A.cm()
	id := ma.resolved(netip.AddrPortFrom(c.B.addr, 9))
	ma.qp(id)
	c.must(id.Connect(c.connParam("")), "connect")
	if ev := ma.take(verbs.CMRejected); ev.Status != verbs.RejInvalidServiceID {
		c.failf("a request to a port without a listener is rejected with reason %d", ev.Status)
	}
}

func cmListenerGone(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	l, at := mb.listen(0)
	c.must(l.Close(), "closing the listener")
	id := ma.resolved(at)
	ma.qp(id)
	c.must(id.Connect(c.connParam("")), "connect")
	ma.take(verbs.CMRejected)
	l2 := mb.id(0)
	c.must(l2.Bind(at), "binding the port of a closed listener")
	c.must(l2.Listen(1), "listening on the port of a closed listener")
}

func cmTooMuch(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	ida := ma.resolved(at)
	ma.qp(ida)
	refused := func(what string, err error) {
		c.t.Helper()
		c.refused(err, what+" with one byte too many", verbs.ErrInvalid, syscall.EINVAL)
	}
	refused("connect", ida.Connect(c.connParam(strings.Repeat("x", verbs.MaxPrivateConnect+1))))
	mb.quiet("the request was refused")
	c.must(ida.Connect(c.connParam("")), "connect after a refused one")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	mb.qp(req.ID)
	refused("accept", req.ID.Accept(c.connParam(strings.Repeat("x", verbs.MaxPrivateAccept+1))))
	refused("reject", req.ID.Reject([]byte(strings.Repeat("x", verbs.MaxPrivateReject+1))))
	ma.quiet("the answers were refused")
	c.must(req.ID.Accept(c.connParam("")), "accept after refused answers")
	ma.take(verbs.CMEstablished)
	mb.take(verbs.CMEstablished)
}

func cmPortInUse(c *Case) {
	mb := c.B.cm()
	_, at := mb.listen(0)
	id := mb.id(0)
	err := id.Bind(at)
	if err == nil {
		err = id.Listen(1)
	}
	c.refused(err, "a second listener at "+at.String(), syscall.EADDRINUSE)
}

func cmForeign(c *Case) {
	m := c.A.cm()
	id := m.id(0)
	c.refused(id.Bind(anyPort(netip.MustParseAddr("198.51.100.77"))), "binding an address that is no device's",
		syscall.EADDRNOTAVAIL, syscall.ENODEV)
	c.must(id.Bind(anyPort(c.A.addr)), "binding the device's own address after a refused one")
}

func cmOrder(c *Case) {
	m := c.A.cm()
	fresh := m.id(0)
	cq := c.A.cq(4, nil)
	init := &verbs.QPInitAttr{SendCQ: cq.CQ, RecvCQ: cq.CQ, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	c.refused(fresh.Connect(c.connParam("")), "connect before anything")
	c.refused(fresh.Accept(c.connParam("")), "accept without a request")
	c.refused(fresh.Reject(nil), "reject without a request")
	c.refused(fresh.Disconnect(), "disconnect without a connection")
	c.refused(fresh.ResolveRoute(resolveTimeout), "resolve_route before resolve_addr")
	c.refused(fresh.CreateQP(c.A.pd, init), "rdma_create_qp without a device")
	_, at := m.listen(0)
	l := m.ids[len(m.ids)-1]
	c.refused(l.Connect(c.connParam("")), "connect of a listener")
	c.refused(l.Bind(anyPort(at.Addr())), "binding a listener again")
	k := c.dial("", "")
	c.refused(k.ida.Connect(c.connParam("")), "connect of an established connection")
	c.refused(k.idb.Accept(c.connParam("")), "accept of an established connection")
	c.refused(k.idb.Reject(nil), "reject of an established connection")
	c.refused(k.ida.Listen(1), "listen of an established connection")
}

func cmUnacked(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	id := ma.id(0)
	c.must(id.ResolveAddr(netip.AddrPort{}, at, resolveTimeout), "resolve_addr")
	ev := ma.event(verbs.CMAddrResolved)
	c.refused(id.Close(), "closing an identifier with an unacknowledged event", verbs.ErrBusy)
	other := c.A.cm()
	c.refused(id.Migrate(other.ch), "migrating an identifier with an unacknowledged event", verbs.ErrBusy)
	ma.ch.Ack(ev)
	c.must(id.Close(), "closing the identifier after the acknowledgement")
	c.must(id.Close(), "closing it twice")
}

func cmChannelBusy(c *Case) {
	m := c.A.cm()
	id := m.id(0)
	c.refused(m.ch.Close(), "closing a channel with an identifier", verbs.ErrBusy)
	c.must(id.Close(), "closing the identifier")
	c.must(m.ch.Close(), "closing the channel after its identifier")
	_, err := m.ch.CreateID(verbs.PSTCP, 0)
	c.refused(err, "create_id on a closed channel")
}

func cmPartition(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	id := ma.resolved(at)
	ma.qp(id)
	c.fault(c.A, c.B, Fault{Down: true})
	c.must(id.Connect(c.connParam("")), "connect")
	if ev := ma.take(verbs.CMUnreachable); ev.Status >= 0 {
		c.failf("an unreachable peer is reported with status %d", ev.Status)
	}
	mb.quiet("nothing arrived")
}
