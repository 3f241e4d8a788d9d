package verbstest

import (
	"net/netip"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
)

var (
	cmOnly   = needs{cm: true}
	cmSend   = needs{cm: true, ops: sendWrite.ops}
	cmFaults = needs{cm: true, faults: true, packets: true, ops: sendWrite.ops}
)

var cmCases = []Spec{
	{Name: "cm_connects_and_carries_private_data_both_ways", Rule: "rdma_connect(3), rdma_accept(3); semantics 18", needs: cmOnly, run: cmPrivate},
	{Name: "cm_most_private_data_arrives", Rule: "semantics 18: 56 bytes; rdma_accept(3)", needs: cmOnly, run: cmMostPrivate},
	{Name: "cm_connection_carries_data_both_ways", Rule: "rdma_create_qp(3)", needs: cmSend, run: cmData},
	{Name: "cm_receives_may_be_posted_before_connecting", Rule: "semantics 17", needs: cmSend, run: cmEarlyReceives},
	{Name: "cm_knows_both_addresses", Rule: "rdma_get_local_addr(3), rdma_get_peer_addr(3)", needs: cmOnly, run: cmAddresses},
	{Name: "cm_request_inherits_the_listeners_user_data", Rule: "rdma_get_cm_event(3): CONNECT_REQUEST", needs: cmOnly, run: cmInherits},
	{Name: "cm_negotiates_depths", Rule: "rdma_connect(3): responder_resources, initiator_depth", needs: cmOnly, run: cmDepths},
	{Name: "cm_listener_serves_many", Rule: "rdma_listen(3)", needs: cmSend, run: cmMany},
	{Name: "cm_disconnect_is_seen_by_both_and_flushes", Rule: "semantics 20; rdma_disconnect(3)", needs: cmSend, run: cmDisconnect},
	{Name: "cm_both_may_disconnect_at_once", Rule: "semantics 9, 20", needs: cmOnly, run: cmBothDisconnect},
	{Name: "cm_closing_an_identifier_disconnects_the_peer", Rule: "rdma_destroy_id(3); semantics 20", needs: cmOnly, run: cmCloseDisconnects},
	{Name: "cm_migrated_identifier_reports_to_its_new_channel", Rule: "rdma_migrate_id(3)", needs: cmOnly, run: cmMigrate},
	{Name: "cm_migrating_to_its_own_channel_keeps_the_events", Rule: "rdma_migrate_id(3); kernel ucma_migrate_id: cur_file == new_file", needs: cmOnly, run: cmMigrateHome},
	{Name: "cm_each_end_sets_its_own_ack_timeout_and_retries", Rule: "contract: CMID.SetAckTimeout, ConnParam.RetryCount", needs: cmOnly, run: cmOwnTimeout},
	{Name: "cm_ack_timeout_out_of_range_is_refused", Rule: "contract: CMID.SetAckTimeout", needs: cmOnly, run: cmAckTimeoutRange},
	{Name: "cm_type_of_service_is_that_of_both_ends", Rule: "contract: CMID.SetTOS; rdma_set_option(3): RDMA_OPTION_ID_TOS", needs: cmOnly, run: cmTOS},
	{Name: "cm_lost_messages_are_sent_again", Rule: "IBTA 12.9.8: retransmission of REQ, REP, RTU", needs: cmFaults, run: cmLost},
	{Name: "cm_lost_disconnect_is_sent_again", Rule: "IBTA 12.9.8: retransmission of DREQ", needs: cmFaults, run: cmLostDisconnect},
}

func startsWith(got []byte, want string) bool { return strings.HasPrefix(string(got), want) }

func cmPrivate(c *Case) {
	k := c.dial("ask", "answer")
	if !startsWith(k.request.Conn.PrivateData, "ask") {
		c.failf("the private data of the request arrived as %q", k.request.Conn.PrivateData)
	}
	if !startsWith(k.atA.Conn.PrivateData, "answer") {
		c.failf("the private data of the answer arrived as %q", k.atA.Conn.PrivateData)
	}
	for _, rest := range [][]byte{k.request.Conn.PrivateData[3:], k.atA.Conn.PrivateData[6:]} {
		if strings.Trim(string(rest), "\x00") != "" {
			c.failf("private data is padded with %q, not with zeros", rest)
		}
	}
	if k.ida.QP() == nil || k.ida.QP().Num() != k.a.Num() {
		c.failf("the identifier does not know its queue pair")
	}
	for _, q := range []*QP{k.a, k.b} {
		if s := q.state(); s != verbs.QPSRTS {
			c.failf("after ESTABLISHED the queue pair of %s is in %v", q.end.name, s)
		}
	}
	k.ma.quiet("the connection is established")
	k.mb.quiet("the connection is established")
}

func cmMostPrivate(c *Case) {
	ask, answer := strings.Repeat("q", verbs.MaxPrivateConnect), strings.Repeat("a", verbs.MaxPrivateAccept)
	k := c.dial(ask, answer)
	if string(k.request.Conn.PrivateData) != ask {
		c.failf("%d bytes of private data arrived as %q", len(ask), k.request.Conn.PrivateData)
	}
	if string(k.atA.Conn.PrivateData) != answer {
		c.failf("%d bytes of private data arrived as %q", len(answer), k.atA.Conn.PrivateData)
	}
}

func cmData(c *Case) {
	k := c.dial("", "")
	ra, rb := c.A.region(3000).fill(1), c.B.region(3000).fill(2)
	ia, ib := c.A.region(3000), c.B.region(3000)
	k.a.recv(RR{id: 1, sg: sg(ia.all())})
	k.b.recv(RR{id: 2, sg: sg(ib.all())})
	k.a.send(sendOf(3, ra.all()))
	k.b.send(sendOf(4, rb.all()))
	k.a.sent(k.a.scq.one(), 3, verbs.WCSend)
	k.b.sent(k.b.scq.one(), 4, verbs.WCSend)
	k.a.received(k.a.rcq.one(), 1, verbs.WCRecv, 3000)
	k.b.received(k.b.rcq.one(), 2, verbs.WCRecv, 3000)
	c.same(ia.bytes(), rb.bytes(), "what went from B to A")
	c.same(ib.bytes(), ra.bytes(), "what went from A to B")
}

// The passive side sends as soon as it is established; the receive was posted long before.
func cmEarlyReceives(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	src, dst := c.B.region(64).fill(1), c.A.region(64)
	ida := ma.resolved(at)
	a := ma.qp(ida)
	if s := a.state(); s != verbs.QPSInit {
		c.failf("rdma_create_qp left the queue pair in %v, receives cannot be posted", s)
	}
	a.recv(RR{id: 9, sg: sg(dst.all())})
	c.must(ida.Connect(c.connParam("")), "connect")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	b := mb.qp(req.ID)
	b.recv(RR{id: 8})
	c.must(req.ID.Accept(c.connParam("")), "accept")
	mb.take(verbs.CMEstablished)
	b.send(sendOf(1, src.all()))
	ma.take(verbs.CMEstablished)
	a.received(a.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "the first message of the passive side")
	a.send(sendOf(2))
	b.received(b.rcq.one(), 8, verbs.WCRecv, 0)
}

func cmAddresses(c *Case) {
	k := c.dial("", "")
	la, pa, lb, pb := k.ida.LocalAddr(), k.ida.PeerAddr(), k.idb.LocalAddr(), k.idb.PeerAddr()
	if la.Addr() != c.A.addr || pa.Addr() != c.B.addr || la != pb || pa != lb || la.Port() == 0 {
		c.failf("A says %v to %v, B says %v to %v", la, pa, lb, pb)
	}
	if k.idb.Device() != c.B.ctx.Device().Name {
		c.failf("a request to %v came in on device %q", pa, k.idb.Device())
	}
}

func cmInherits(c *Case) {
	k := c.dial("", "")
	if k.idb.UserData() != 0x77 || k.request.ListenID == nil || k.request.ListenID == k.idb {
		c.failf("the request has user data %#x, listener %v, identifier %v", k.idb.UserData(), k.request.ListenID, k.idb)
	}
	k.idb.SetUserData(0x88)
	if k.idb.UserData() != 0x88 || k.request.ListenID.UserData() != 0x77 {
		c.failf("setting the user data of a request's identifier gave %#x, its listener has %#x", k.idb.UserData(), k.request.ListenID.UserData())
	}
}

// One end's outstanding requests are at most those that the other serves.
func cmDepths(c *Case) {
	k := c.dial("", "")
	a, err := k.a.Query()
	c.must(err, "query_qp")
	b, err := k.b.Query()
	c.must(err, "query_qp")
	if a.MaxRdAtomic > b.MaxDestRdAtomic || b.MaxRdAtomic > a.MaxDestRdAtomic {
		c.failf("A asks %d of %d at once, B %d of %d", a.MaxRdAtomic, b.MaxDestRdAtomic, b.MaxRdAtomic, a.MaxDestRdAtomic)
	}
	if a.DestQPN != k.b.Num() || b.DestQPN != k.a.Num() {
		c.failf("the queue pairs %#x and %#x are connected to %#x and %#x", k.a.Num(), k.b.Num(), a.DestQPN, b.DestQPN)
	}
	if a.SQPSN != b.RQPSN || b.SQPSN != a.RQPSN || a.PathMTU != b.PathMTU {
		c.failf("the ends do not agree: %+v, %+v", a, b)
	}
}

func cmMany(c *Case) {
	const n = 4
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.listen(0)
	var conns []*conn
	for range n {
		k := &conn{ma: ma, mb: mb}
		c.dialTo(k, at, "", "")
		conns = append(conns, k)
	}
	src, dst := c.A.region(8*n).fill(1), c.B.region(8*n)
	for i, k := range conns {
		k.b.recv(RR{id: uint64(i), sg: sg(dst.sge(8*i, 8))})
	}
	for i := range conns {
		i = n - 1 - i
		conns[i].a.send(sendOf(uint64(i), src.sge(8*i, 8)))
	}
	for i, k := range conns {
		k.a.sent(k.a.scq.one(), uint64(i), verbs.WCSend)
		k.b.received(k.b.rcq.one(), uint64(i), verbs.WCRecv, 8)
	}
	c.same(dst.bytes(), src.bytes(), "one message on each connection")
}

func cmDisconnect(c *Case) {
	k := c.dial("", "")
	ra, rb := c.A.region(8), c.B.region(8)
	k.a.recv(RR{id: 1, sg: sg(ra.all())}, RR{id: 2, sg: sg(ra.all())})
	k.b.recv(RR{id: 3, sg: sg(rb.all())})
	c.must(k.ida.Disconnect(), "disconnect")
	k.a.flushed(k.a.rcq, 1, 2)
	k.mb.take(verbs.CMDisconnected)
	if s := k.b.state(); s != verbs.QPSRTS { // acknowledgements may still be in the network
		c.failf("at DISCONNECTED the peer's queue pair is in %v, want it left to Disconnect", s)
	}
	k.mb.agrees(k.idb)
	k.ma.take(verbs.CMDisconnected)
	k.b.flushed(k.b.rcq, 3)
	c.bothDead(k.a, k.b)
	k.a.send(sendOf(4, ra.all()))
	k.a.flushed(k.a.scq, 4)
	k.ma.take(verbs.CMTimewaitExit)
	k.mb.take(verbs.CMTimewaitExit)
}

// agrees disconnects the side that received a DISCONNECTED event. Both sides should: the kernel
// answers the peer's request only then (Linux drivers/infiniband/core/cma.c, rdma_disconnect). If
// it was answered already, the error is ignored.
func (m *CM) agrees(id verbs.CMID) { _ = id.Disconnect() }

func cmBothDisconnect(c *Case) {
	k := c.dial("", "")
	c.must(k.ida.Disconnect(), "disconnect of A")
	c.must(k.idb.Disconnect(), "disconnect of B at the same time")
	k.ma.take(verbs.CMDisconnected)
	k.ma.agrees(k.ida) // requests that crossed are not answered yet
	k.mb.take(verbs.CMDisconnected)
	k.mb.agrees(k.idb)
	c.bothDead(k.a, k.b)
	k.ma.take(verbs.CMTimewaitExit)
	k.mb.take(verbs.CMTimewaitExit)
}

func cmCloseDisconnects(c *Case) {
	k := c.dial("", "")
	before := c.A.ctx.Objects()
	c.until("closing a connected identifier", func() bool { return k.ida.Close() == nil })
	if got := c.A.ctx.Objects(); got.QP != before.QP-1 {
		c.failf("closing the identifier left %d queue pairs of %d", got.QP, before.QP)
	}
	k.mb.take(verbs.CMDisconnected)
	k.mb.agrees(k.idb)
	k.b.untilState(verbs.QPSErr)
}

func cmMigrate(c *Case) {
	k := c.dial("", "")
	other := c.A.cm()
	c.must(k.ida.Migrate(other.ch), "migrate_id")
	c.must(k.idb.Disconnect(), "disconnect of B")
	other.take(verbs.CMDisconnected)
	k.ma.quiet("the identifier was migrated")
	other.agrees(k.ida)
	k.mb.take(verbs.CMDisconnected)
	// It closes before the channel it moved to.
	c.until("closing the migrated identifier", func() bool { return k.ida.Close() == nil })
}

// anyPort returns an address with port 0.
func anyPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
