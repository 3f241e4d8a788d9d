package verbstest

import (
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var cmUDPOnly = needs{kinds: []verbs.QPType{verbs.QPTUD}, cm: true, udp: true, ah: true, ops: sendOnly.ops}

var cmUDPCases = []Spec{
	{Name: "cm_udp_brings_the_way_to_the_listeners_queue_pair", Rule: "rdma_connect(3), rdma_cm(7): RDMA_PS_UDP; IBTA 12.11: SIDR", needs: cmUDPOnly, run: cmUDPWay},
	{Name: "cm_udp_queue_pair_is_ready_with_the_key_of_the_port_space", Rule: "semantics 21; librdmacm ucma_init_ud_qp", needs: cmUDPOnly, run: cmUDPKey},
	{Name: "cm_udp_carries_private_data_both_ways", Rule: "semantics 18; rdma_get_cm_event(3): ud", needs: cmUDPOnly, run: cmUDPPrivate},
	{Name: "cm_udp_most_private_data_arrives", Rule: "semantics 18: 180 bytes", needs: cmUDPOnly, run: cmUDPMost},
	{Name: "cm_udp_too_much_private_data_is_refused", Rule: "semantics 18: 180 bytes", needs: cmUDPOnly, run: cmUDPTooMuch},
	{Name: "cm_udp_nobody_listens_is_unreachable", Rule: "rdma_get_cm_event(3): UNREACHABLE with the SIDR status; kernel cma_sidr_rep_handler", needs: cmUDPOnly, run: cmUDPNobody},
	{Name: "cm_udp_reject_is_unreachable", Rule: "rdma_get_cm_event(3): UNREACHABLE with the SIDR status; kernel rdma_reject", needs: cmUDPOnly, run: cmUDPReject},
	{Name: "cm_udp_knows_no_disconnect", Rule: "kernel rdma_disconnect: EINVAL without a connection", needs: cmUDPOnly, run: cmUDPDisconnect},
	{Name: "cm_udp_and_tcp_ports_are_apart", Rule: "rdma_create_id(3): port spaces", needs: cmUDPOnly, run: cmUDPPorts},
	{Name: "cm_udp_lost_request_is_sent_again", Rule: "IBTA 12.11.2: SIDR_REQ is retried", needs: cmUDPOnly.onPackets(), run: cmUDPLost},
	{Name: "cm_udp_silence_is_unreachable", Rule: "rdma_get_cm_event(3): UNREACHABLE, negative errno", needs: cmUDPOnly.onFaults(), run: cmUDPSilence},
}

func cmUDPWay(c *Case) {
	k := c.ask("", "")
	if to := k.answer.UD.AH; k.answer.UD.QPNum != k.b.Num() || to.DGID != c.B.gid && (to.DGID != verbs.GID{} || c.B.lid == 0 || to.DLID != c.B.lid) {
		c.failf("asked for the queue pair %#x at %v, the answer is %#x at %v", k.b.Num(), c.B.gid, k.answer.UD.QPNum, k.answer.UD.AH.DGID)
	}
	src, dst := c.A.region(16).fill(1), c.B.region(64)
	k.b.recv(RR{id: 9, sg: sg(dst.all())})
	k.a.send(sendOf(1, src.all()).to(c.A.handle(k.answer.UD.AH), k.answer.UD.QPNum, k.answer.UD.QKey))
	k.a.sent(k.a.scq.one(), 1, verbs.WCSend)
	k.b.datagram(k.b.rcq.one(), 9, 16, k.a)
	c.same(dst.bytes()[grhSize:grhSize+16], src.bytes(), "a datagram on the way the answer told")
	k.mb.quiet("in port space UDP nothing is established at the listener's side")
}

func cmUDPKey(c *Case) {
	k := c.ask("", "")
	for _, q := range []*QP{k.a, k.b} {
		at, err := q.Query()
		c.must(err, "query_qp")
		if at.State != verbs.QPSRTS || at.QKey != verbs.UDPQKey {
			c.failf("the queue pair of %s is in %v with Q_Key %#x, want RTS and %#x", q.end.name, at.State, at.QKey, uint32(verbs.UDPQKey))
		}
	}
	if k.answer.UD.QKey != verbs.UDPQKey {
		c.failf("the answer says Q_Key %#x, want %#x", k.answer.UD.QKey, uint32(verbs.UDPQKey))
	}
}

func cmUDPPrivate(c *Case) {
	k := c.ask("question", "reply")
	ask, reply := k.request.UD.PrivateData, k.answer.UD.PrivateData
	if !startsWith(ask, "question") || strings.Trim(string(ask[8:]), "\x00") != "" {
		c.failf("the private data of the request came as %q", ask)
	}
	if !startsWith(reply, "reply") || strings.Trim(string(reply[5:]), "\x00") != "" {
		c.failf("the private data of the answer came as %q", reply)
	}
	if k.idb.UserData() != 0x77 {
		c.failf("the request's identifier has user data %#x, its listener 0x77", k.idb.UserData())
	}
}

func cmUDPMost(c *Case) {
	most := strings.Repeat("u", verbs.MaxPrivateUDP)
	if k := c.ask(most, ""); string(k.request.UD.PrivateData) != most {
		c.failf("%d bytes of private data arrived as %q", len(most), k.request.UD.PrivateData)
	}
}

func cmUDPTooMuch(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.udpListen()
	id := ma.udpResolved(at)
	ma.udQP(id)
	err := id.Connect(&verbs.ConnParam{PrivateData: make([]byte, verbs.MaxPrivateUDP+1)})
	c.refused(err, "connect with too much private data", verbs.ErrInvalid, syscall.EINVAL)
	mb.quiet("nothing was asked")
}

// unreachable checks the event of a request that is refused or not answered.
func (m *CM) unreachable(why string) verbs.CMEvent {
	m.c.t.Helper()
	ev := m.take(verbs.CMUnreachable)
	if ev.Status == 0 {
		m.c.failf("%s: UNREACHABLE without a status", why)
	}
	return ev
}

func cmUDPNobody(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	l, at := mb.udpListen()
	c.must(l.Close(), "destroy_id of the listener")
	id := ma.udpResolved(at)
	ma.udQP(id)
	c.must(id.Connect(&verbs.ConnParam{}), "connect")
	ma.unreachable("nobody listens")
}

func cmUDPReject(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.udpListen()
	id := ma.udpResolved(at)
	ma.udQP(id)
	c.must(id.Connect(&verbs.ConnParam{}), "connect")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	c.must(req.ID.Reject([]byte("no")), "reject")
	ma.unreachable("the listener rejected")
}

func cmUDPDisconnect(c *Case) {
	k := c.ask("", "")
	// There is no message for the peer. The kernel does not report that (rdma_disconnect ignores
	// the errors of ib_send_cm_dreq and ib_send_cm_drep).
	if err := k.ida.Disconnect(); err != nil {
		c.wantErrno(err, "disconnect in port space UDP", syscall.EINVAL)
	}
	k.ma.quiet("port space UDP has no connections")
	k.mb.quiet("port space UDP has no connections")
}

func cmUDPPorts(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.udpListen()
	id := mb.id(0)
	c.must(id.Bind(at), "binding a TCP identifier to a port that a UDP one has")
	c.must(id.Listen(1), "listen")
	u := ma.udpResolved(at)
	ma.udQP(u)
	c.must(u.Connect(&verbs.ConnParam{PrivateData: []byte("udp")}), "connect")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	if !startsWith(req.UD.PrivateData, "udp") {
		c.failf("a request in port space UDP reached %+v", req)
	}
}

func cmUDPLost(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.udpListen()
	id := ma.udpResolved(at)
	ma.udQP(id)
	c.fault(c.A, c.B, Fault{Drop: []uint64{1}})
	c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
	c.must(id.Connect(&verbs.ConnParam{RetryCount: maxRetry}), "connect")
	req := mb.take(verbs.CMConnectRequest)
	mb.owns(req.ID)
	mb.udQP(req.ID)
	c.must(req.ID.Accept(&verbs.ConnParam{QPNum: req.ID.QP().Num()}), "accept")
	ma.take(verbs.CMEstablished)
	mb.quiet("one request was made")
}

func cmUDPSilence(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, at := mb.udpListen()
	id := ma.udpResolved(at)
	ma.udQP(id)
	c.fault(c.A, c.B, Fault{Down: true})
	c.must(id.Connect(&verbs.ConnParam{}), "connect")
	if ev := ma.unreachable("the link is down"); ev.Status > 0 {
		c.failf("a request that was not answered ended with the status %d, want a negative errno", ev.Status)
	}
}
