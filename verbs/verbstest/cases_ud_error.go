package verbstest

import (
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var udErrorCases = []Spec{
	{Name: "ud_wrong_queue_key_is_dropped", Rule: "IBTA 9.6.1.4.1, 10.2.5: silently, and counted", needs: udOnly, run: udWrongKey},
	{Name: "ud_queue_key_with_the_top_bit_is_the_senders_own", Rule: "IBTA 10.2.5, 11.4.1.1: controlled Q_Key", needs: udOnly, run: udControlledKey},
	{Name: "ud_without_a_receive_is_dropped", Rule: "IBTA 9.8.3: no RNR; rxe RESPST_ERR_RNR, class D", needs: udOnly, run: udNoReceive},
	{Name: "ud_to_nobody_completes", Rule: "IBTA 9.8.3: unreliable", needs: udOnly, run: udNobody},
	{Name: "ud_receive_too_small_is_no_success", Rule: "IBTA 9.8.3.2.2; rxe RESPST_ERR_LENGTH", needs: udOnly, run: udTooSmall},
	{Name: "ud_datagram_over_the_mtu_is_not_sent", Rule: "IBTA C10-93.1.1; rxe rxe_requester", needs: udOnly, run: udTooLong},
	{Name: "ud_takes_no_other_opcodes", Rule: "IBTA table 42: UD does SEND", needs: udOnly, run: udOpcodes},
	{Name: "ud_dead_address_handle_is_refused", Rule: "semantics 32: the handle outlives the completion", needs: udOnly.with(func(n *needs) { n.checked = true }), run: udDeadHandle},
	{Name: "ud_lost_datagrams_leave_the_others", Rule: "IBTA 9.8.3: unreliable", needs: udOnly.onPackets(), run: udLost},
	{Name: "ud_local_error_stops_the_send_queue_only", Rule: "IBTA 10.3.1.6: SQE", needs: udOnly, run: func(c *Case) { sqe(c, verbs.QPTUD) }},
	{Name: "uc_local_error_stops_the_send_queue_only", Rule: "IBTA 10.3.1.6: SQE", needs: ucSend, run: func(c *Case) { sqe(c, verbs.QPTUC) }},
}

func udWrongKey(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(8).fill(1), c.B.region(48).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey+1))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.rcq.none("the Q_Key is wrong")
	c.untouched(dst.bytes(), "the receive of a datagram with a wrong Q_Key")
	a.send(sendOf(2, src.all()).to(ah, b.Num(), udKey))
	b.datagram(b.rcq.one(), 9, 8, a)
	a.sent(a.scq.one(), 2, verbs.WCSend)
}

func udControlledKey(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(8).fill(1), c.B.region(48)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), 0x80000000))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.datagram(b.rcq.one(), 9, 8, a)
}

func udNoReceive(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(16).fill(1), c.B.region(48).poison()
	a.send(sendOf(1, src.sge(0, 8)).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	c.arrives()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	b.rcq.none("the datagram came before the receive, and is gone")
	a.send(sendOf(2, src.sge(8, 8)).to(ah, b.Num(), udKey))
	b.datagram(b.rcq.one(), 9, 8, a)
	c.same(dst.bytes()[grhSize:], src.bytes()[8:], "the datagram after the lost one")
}

func udNobody(c *Case) {
	a, b, ah := c.udPair()
	src := c.A.region(8)
	qpn := b.Num()
	c.must(b.Close(), "destroy_qp")
	a.send(sendOf(1, src.all()).to(ah, qpn, udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	gone := c.B.gid
	gone[15] ^= 0x7f // no port has this address
	// A device that resolves the address when the handle is made refuses it then (ibv_create_ah
	// asks the kernel for the hardware address).
	if ah, err := c.A.tryAH(gone); err == nil {
		a.send(sendOf(2, src.all()).to(ah, qpn, udKey))
		a.sent(a.scq.one(), 2, verbs.WCSend)
	} else {
		c.wantErrno(err, "create_ah to nobody", syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH)
	}
	if s := a.state(); s != verbs.QPSRTS {
		c.failf("datagrams to nobody moved the sender to %v", s)
	}
}

// The specification completes the receive with an error, rxe drops the datagram; no device
// reports success or writes behind the buffer.
func udTooSmall(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(100).fill(1), c.B.region(256).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(0, grhSize+50))})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	c.settle()
	for b.rcq.poll() > 0 {
	}
	for _, w := range b.rcq.got {
		b.failed(w, 9, verbs.WCLocLenErr, verbs.WCRemInvReqErr)
	}
	c.untouched(dst.bytes()[grhSize+50:], "the memory behind a receive that is too small")
}

// The specification forbids an error and rxe reports success; adapters complete with LOC_LEN_ERR
// or refuse the post. No device sends the datagram.
func udTooLong(c *Case) {
	n := c.maxDatagram() + 1
	a, b, ah := c.udPair()
	src, dst := c.A.region(n), c.B.region(2*n+grhSize).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	if _, err := a.trySend(sendOf(1, src.all()).to(ah, b.Num(), udKey)); err == nil {
		if w := a.scq.one(); w.Status != verbs.WCSuccess {
			a.failed(w, 1, verbs.WCLocLenErr)
		}
	} else {
		c.wantErrno(err, "a datagram over the MTU", syscall.EINVAL, syscall.EMSGSIZE, syscall.ENOMEM)
	}
	b.rcq.none("a datagram over the MTU is not sent")
	c.untouched(dst.bytes(), "the receive")
}

// failsSomehow posts an invalid request for the queue pair: it is refused, or completes with an
// error.
func (q *QP) failsSomehow(what string, r SR, want ...verbs.WCStatus) {
	q.c.t.Helper()
	if _, err := q.trySend(r); err != nil {
		q.c.wantErrno(err, what, syscall.EINVAL, syscall.EOPNOTSUPP)
		return
	}
	if w := q.scq.one(); !slices.Contains(want, w.Status) {
		q.c.failf("%s completed as %s", what, show(w))
	}
}

func udOpcodes(c *Case) {
	ah := c.A.ah(c.B.gid)
	b := c.B.ud()
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	for _, r := range []SR{writeOf(1, dst, 0, src.all()), writeImmOf(1, 1, dst, 0, src.all()), readOf(1, dst, 0, src.all()),
		casOf(1, dst, 0, 1, 2, src.sge(0, 8)), addOf(1, dst, 0, 1, src.sge(0, 8)), sendInvOf(1, 5, src.all())} {
		if r.op != verbs.WRSendWithInv && !c.pair.Caps.Opcodes.Has(r.op) {
			continue
		}
		q := c.A.ud()
		q.failsSomehow(r.op.String()+" on a UD queue pair", r.to(ah, b.Num(), udKey), verbs.WCLocQPOpErr)
	}
	c.untouched(dst.bytes(), "memory that a UD queue pair cannot reach")
}

func udDeadHandle(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(8), c.B.region(48).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	r := sendOf(1, src.all()).to(ah, b.Num(), udKey)
	c.must(ah.Close(), "destroy_ah")
	a.failsSomehow("a datagram by a destroyed address handle", r, verbs.WCLocQPOpErr)
	b.rcq.none("an address handle was destroyed")
	r.ud = &dest{ah: 0, qpn: b.Num(), qkey: udKey}
	c.A.ud().failsSomehow("a datagram by no address handle", r, verbs.WCLocQPOpErr)
}

func udLost(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(40).fill(1), c.B.region(5*48)
	c.fault(c.A, c.B, Fault{Drop: []uint64{2, 4}})
	for i := range 5 {
		b.recv(RR{id: uint64(i), sg: sg(dst.sge(48*i, 48))})
	}
	for i := range 5 {
		a.send(sendOf(uint64(i), src.sge(8*i, 8)).to(ah, b.Num(), udKey))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		c.settle()
	}
	for i, w := range b.rcq.take(3) {
		b.datagram(w, uint64(i), 8, a)
		c.same(dst.bytes()[48*i+grhSize:48*i+48], src.bytes()[16*i:16*i+8], "a datagram that was not lost")
	}
	b.rcq.none("two datagrams were lost")
}

// sqe checks that a request that fails locally stops the send queue: later ones are flushed,
// receives continue, and modify_qp restarts it.
func sqe(c *Case, k verbs.QPType) {
	var a, b *QP
	to := func(r SR) SR { return r }
	if k == verbs.QPTUD {
		var ah verbs.AH
		a, b, ah = c.udPair()
		to = func(r SR) SR { return r.to(ah, b.Num(), udKey) }
	} else {
		a, b = c.link(func(o *opts) { o.kind = k })
	}
	src, dst, mine := c.A.region(64).fill(1), c.B.region(256), c.A.region(128)
	a.recv(RR{id: 20, sg: sg(mine.all())}, RR{id: 21, sg: sg(mine.all())})
	bad := src.all()
	bad.LKey ^= 0x00c0ffee
	a.send(to(sendOf(1, bad)), to(sendOf(2, src.all())))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.flushed(a.scq, 2)
	a.untilState(verbs.QPSSQE)
	a.send(to(sendOf(3, src.all())))
	a.flushed(a.scq, 3)
	if k == verbs.QPTUC { // its peer's answer still arrives
		b.send(sendOf(4, dst.sge(0, 8)))
		a.received(a.rcq.one(), 20, verbs.WCRecv, 8)
	} else {
		b.send(sendOf(4, dst.sge(0, 8)).to(c.B.ah(c.A.gid), a.Num(), udKey))
		a.datagram(a.rcq.one(), 20, 8, b)
	}
	c.must(a.Modify(&verbs.QPAttr{State: verbs.QPSRTS, CurState: verbs.QPSSQE}, verbs.QPMState|verbs.QPMCurState), "SQE to RTS")
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(to(sendOf(5, src.all())))
	a.sent(a.scq.one(), 5, verbs.WCSend)
	if w := b.rcq.one(); w.Status != verbs.WCSuccess || w.WRID != 9 {
		c.failf("after SQE to RTS the peer received %s", show(w))
	}
	a.rcq.none("the other receive is still posted")
}
