package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// The targets of the access cases are pages of this size, poisoned.
const targetSize = 4096

// refusal is one way to access memory without permission.
type refusal struct {
	name, rule string
	needs      needs
	// request builds it: the operation's local memory is in local.
	request func(c *Case, a, b *QP, local *Region) SR
	opts    func(*opts)
	// status is the requester's status; default REM_ACCESS_ERR.
	status []verbs.WCStatus
}

var refusals = []refusal{
	{name: "write_with_wrong_rkey", rule: "IBTA 9.7.4.1.5; rxe RESPST_ERR_RKEY_VIOLATION", needs: writeOnly, request: wrongKey(writeOf)},
	{name: "read_with_wrong_rkey", rule: "IBTA 9.7.4.1.5", needs: readOnly, request: wrongKey(readOf)},
	{name: "atomic_with_wrong_rkey", rule: "IBTA 9.7.4.1.5", needs: atomicOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		r := addOf(1, c.B.region(targetSize).poison(), 0, 1, l.sge(0, 8))
		r.rkey ^= 0x00c0ffee
		return r
	}},
	{name: "write_with_the_key_of_another_region", rule: "IBTA 10.6.3", needs: writeOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		r := writeOf(1, c.B.region(targetSize).poison(), 0, l.sge(0, 64))
		r.rkey = c.B.region(64).mr.RKey()
		return r
	}},
	{name: "write_one_byte_before", rule: "IBTA 9.7.4.1.5: range", needs: writeOnly, request: inRange(-1, 64)},
	{name: "write_one_byte_behind", rule: "IBTA 9.7.4.1.5: range", needs: writeOnly, request: inRange(targetSize-63, 64)},
	{name: "write_wholly_behind", rule: "IBTA 9.7.4.1.5: range", needs: writeOnly, request: inRange(targetSize, 1)},
	{name: "write_that_wraps_around", rule: "IBTA 9.7.4.1.5: range; invariant 12", needs: writeOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		r := writeOf(1, c.B.region(targetSize).poison(), 0, l.sge(0, 64))
		r.remote = ^uint64(0) - 31
		return r
	}},
	{name: "write_of_several_packets_one_byte_behind", rule: "IBTA 9.7.4.1.5: the whole range, at the first packet", needs: writeOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return writeOf(1, c.B.region(targetSize).poison(), 1, l.all())
	}},
	{name: "read_one_byte_behind", rule: "IBTA 9.7.4.1.5: range", needs: readOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return readOf(1, c.B.region(targetSize).poison(), 1, l.all())
	}},
	{name: "atomic_over_the_end", rule: "IBTA 9.7.4.1.5: range", needs: atomicOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return addOf(1, c.B.regionOf(c.B.pd, targetSize-4, fullAccess, 0).poison(), targetSize-8, 1, l.sge(0, 8))
	}},
	{name: "write_without_remote_write", rule: "semantics 37; IBTA 10.6.3.1", needs: writeOnly, request: without(verbs.AccessRemoteWrite, writeOf)},
	{name: "read_without_remote_read", rule: "semantics 37; IBTA 10.6.3.1", needs: readOnly, request: without(verbs.AccessRemoteRead, readOf)},
	{name: "atomic_without_remote_atomic", rule: "semantics 37; IBTA 10.6.3.1", needs: atomicOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return addOf(1, c.B.regionOf(c.B.pd, targetSize, fullAccess&^verbs.AccessRemoteAtomic, 0).poison(), 0, 1, l.sge(0, 8))
	}},
	{name: "write_into_another_protection_domain", rule: "IBTA 10.2.3", needs: writeOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return writeOf(1, c.B.regionOf(c.B.newPD(), targetSize, fullAccess, 0).poison(), 0, l.sge(0, 64))
	}},
	{name: "read_from_another_protection_domain", rule: "IBTA 10.2.3", needs: readOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		return readOf(1, c.B.regionOf(c.B.newPD(), targetSize, fullAccess, 0).poison(), 0, l.sge(0, 64))
	}},
	{name: "write_with_a_deregistered_key", rule: "ibv_dereg_mr(3); IBTA 10.6.7.2", needs: writeOnly, request: func(c *Case, _, _ *QP, l *Region) SR {
		t := c.B.region(targetSize).poison()
		r := writeOf(1, t, 0, l.sge(0, 64))
		t.dereg()
		return r
	}},
	{name: "write_to_a_queue_pair_without_remote_write", rule: "IBTA table 58: not enabled is an invalid request; rxe check_op_valid", needs: writeOnly,
		opts: func(o *opts) { o.access = fullAccess &^ verbs.AccessRemoteWrite }, status: notEnabled, request: plain(writeOf)},
	{name: "read_from_a_queue_pair_without_remote_read", rule: "IBTA table 58; rxe check_op_valid", needs: readOnly,
		opts: func(o *opts) { o.access = fullAccess &^ verbs.AccessRemoteRead }, status: notEnabled, request: plain(readOf)},
	{name: "atomic_to_a_queue_pair_without_remote_atomic", rule: "IBTA table 58; rxe check_op_valid", needs: atomicOnly,
		opts: func(o *opts) { o.access = fullAccess &^ verbs.AccessRemoteAtomic }, status: notEnabled,
		request: func(c *Case, _, _ *QP, l *Region) SR {
			return addOf(1, c.B.region(targetSize).poison(), 0, 1, l.sge(0, 8))
		}},
	{name: "write_with_imm_with_wrong_rkey", rule: "IBTA 9.7.4.1.5", needs: writeImm, request: func(c *Case, _, b *QP, l *Region) SR {
		r := writeImmOf(1, 1, c.B.region(targetSize).poison(), 0, l.sge(0, 64))
		r.rkey ^= 0x00c0ffee
		return r
	}},
}

// notEnabled: an invalid request by the specification and rxe, an access error on mlx5.
var notEnabled = []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemAccessErr}

type builder func(id uint64, to *Region, off int, s ...verbs.SGE) SR

func plain(op builder) func(*Case, *QP, *QP, *Region) SR {
	return func(c *Case, _, _ *QP, l *Region) SR {
		return op(1, c.B.region(targetSize).poison(), 0, l.sge(0, 64))
	}
}

func wrongKey(op builder) func(*Case, *QP, *QP, *Region) SR {
	return func(c *Case, a, b *QP, l *Region) SR {
		r := plain(op)(c, a, b, l)
		r.rkey ^= 0x00c0ffee
		return r
	}
}

func without(bit verbs.AccessFlags, op builder) func(*Case, *QP, *QP, *Region) SR {
	return func(c *Case, _, _ *QP, l *Region) SR {
		return op(1, c.B.regionOf(c.B.pd, targetSize, fullAccess&^bit, 0).poison(), 0, l.sge(0, 64))
	}
}

func inRange(off, n int) func(*Case, *QP, *QP, *Region) SR {
	return func(c *Case, _, _ *QP, l *Region) SR {
		r := writeOf(1, c.B.region(targetSize).poison(), 0, l.sge(0, n))
		r.remote += uint64(int64(off))
		return r
	}
}

var accessCases = func() (out []Spec) {
	for _, f := range refusals {
		if f.status == nil {
			f.status = []verbs.WCStatus{verbs.WCRemAccessErr}
		}
		out = append(out, Spec{Name: "rc_refuses_" + f.name, Rule: f.rule, needs: f.needs, run: f.run})
	}
	n := writeOnly
	n.access = true
	return append(out, Spec{Name: "access_violation_is_reported_at_the_responder", Rule: "IBTA 11.6.3.3: QP_ACCESS_ERR, QP_REQ_ERR", needs: n, run: accessEvent})
}()

// run checks that the requester gets the status, the next request is flushed, both queue pairs
// are in ERR, and no byte moved.
func (f refusal) run(c *Case) {
	a, b := c.link(func(o *opts) {
		if f.opts != nil {
			f.opts(o)
		}
	})
	local := c.A.region(targetSize).fill(1)
	before := append([]byte{}, local.bytes()...)
	a.recv(RR{id: 21})
	b.recv(RR{id: 22})
	req := f.request(c, a, b, local)
	var targets [][]byte
	for _, r := range c.regions {
		if r.end == c.B {
			targets = append(targets, r.bytes())
		}
	}
	a.send(req, sendOf(2, local.sge(0, 8)))
	a.failed(a.scq.one(), 1, f.status...)
	a.flushed(a.scq, 2)
	a.flushed(a.rcq, 21)
	w := b.rcq.one() // a WRITE with immediate has used the receive already
	b.failed(w, 22, verbs.WCWRFlushErr, verbs.WCRemAccessErr, verbs.WCLocAccessErr)
	c.bothDead(a, b)
	for _, t := range targets {
		if len(t) >= targetSize-4 {
			c.untouched(t, "the target of a refused request")
		}
	}
	c.same(local.bytes(), before, "the local buffer of a refused request")
	a.scq.none("each request completes once")
	b.rcq.none("each receive completes once")
}

func accessEvent(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64), c.B.region(64)
	r := writeOf(1, dst, 0, src.all())
	r.rkey ^= 0x00c0ffee
	a.send(r)
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	c.B.untilEvent(b.QP, verbs.EventQPAccessErr, verbs.EventQPReqErr)
}
