package verbstest

import (
	"errors"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// SR is a send work request of a case.
type SR struct {
	id            uint64
	op            verbs.WROpcode
	flags         verbs.SendFlags
	sg            []verbs.SGE
	imm           uint32
	remote        uint64
	rkey          uint32
	compare, swap uint64 // also the operand of FETCH_AND_ADD and the value of ATOMIC_WRITE
	ud            *dest  // destination of a datagram
	invalidate    uint32 // key
	bind          *binding
	flush         *flushRange
	srqn          uint32 // XRC
}

// RR is a receive work request of a case.
type RR struct {
	id uint64
	sg []verbs.SGE
}

// sg lists elements.
func sg(s ...verbs.SGE) []verbs.SGE { return s }

const signaled = verbs.SendSignaled

// sendOf, writeOf, readOf, casOf and addOf are signaled requests.
func sendOf(id uint64, s ...verbs.SGE) SR {
	return SR{id: id, op: verbs.WRSend, flags: signaled, sg: s}
}

func sendImmOf(id uint64, imm uint32, s ...verbs.SGE) SR {
	return SR{id: id, op: verbs.WRSendWithImm, flags: signaled, sg: s, imm: imm}
}

func writeOf(id uint64, to *Region, off int, s ...verbs.SGE) SR {
	return SR{id: id, op: verbs.WRRDMAWrite, flags: signaled, sg: s, remote: to.at(off), rkey: to.mr.RKey()}
}

func writeImmOf(id uint64, imm uint32, to *Region, off int, s ...verbs.SGE) SR {
	r := writeOf(id, to, off, s...)
	r.op, r.imm = verbs.WRRDMAWriteWithImm, imm
	return r
}

func readOf(id uint64, from *Region, off int, s ...verbs.SGE) SR {
	r := writeOf(id, from, off, s...)
	r.op = verbs.WRRDMARead
	return r
}

func casOf(id uint64, at *Region, off int, compare, swap uint64, s verbs.SGE) SR {
	r := writeOf(id, at, off, s)
	r.op, r.compare, r.swap = verbs.WRAtomicCmpAndSwp, compare, swap
	return r
}

func addOf(id uint64, at *Region, off int, add uint64, s verbs.SGE) SR {
	r := writeOf(id, at, off, s)
	r.op, r.compare = verbs.WRAtomicFetchAndAdd, add
	return r
}

// with returns the request with other flags.
func (r SR) with(f verbs.SendFlags) SR { r.flags = f; return r }

// sgList writes elements into scratch memory.
func (e *End) sgList(s []verbs.SGE) uint64 {
	if len(s) == 0 {
		return 0
	}
	at := e.alloc(len(s) * verbs.SizeofSGE)
	l, _ := mem.Array[verbs.SGE](e.scratch.Arena(), at, len(s))
	copy(l, s)
	return at
}

// sendList writes a linked list of send work requests.
func (e *End) sendList(rs []SR) uint64 {
	if len(rs) == 0 {
		return 0
	}
	head := e.alloc(len(rs) * verbs.SizeofSendWR)
	wrs, _ := mem.Array[verbs.SendWR](e.scratch.Arena(), head, len(rs))
	for i, r := range rs {
		w := &wrs[i]
		*w = verbs.SendWR{WRID: r.id, Opcode: r.op, Flags: r.flags, NumSGE: uint32(len(r.sg)), SGList: e.sgList(r.sg)}
		if i+1 < len(rs) {
			w.Next = head + uint64(i+1)*verbs.SizeofSendWR
		}
		w.SetImm(r.imm)
		w.RemoteSRQN = r.srqn
		switch {
		case r.ud != nil:
			w.SetUD(r.ud.ah, r.ud.qpn, r.ud.qkey)
		case r.op == verbs.WRSendWithInv || r.op == verbs.WRLocalInv:
			w.SetInvalidate(r.invalidate)
		case r.bind != nil:
			w.SetBind(r.bind.mw, r.rkey, r.bind.mr, r.remote, r.bind.length, r.bind.access)
		case r.flush != nil:
			w.SetFlush(r.remote, r.rkey, r.flush.length, r.flush.place, r.flush.reach)
		case r.op == verbs.WRAtomicWrite:
			w.SetAtomicWrite(r.remote, r.rkey, r.compare)
		case r.op == verbs.WRAtomicCmpAndSwp:
			w.SetCompareSwap(r.remote, r.rkey, r.compare, r.swap)
		case r.op == verbs.WRAtomicFetchAndAdd:
			w.SetFetchAdd(r.remote, r.rkey, r.compare)
		default:
			w.SetRDMA(r.remote, r.rkey)
		}
	}
	return head
}

// recvList writes a linked list of receive work requests.
func (e *End) recvList(rs []RR) uint64 {
	if len(rs) == 0 {
		return 0
	}
	head := e.alloc(len(rs) * verbs.SizeofRecvWR)
	wrs, _ := mem.Array[verbs.RecvWR](e.scratch.Arena(), head, len(rs))
	for i, r := range rs {
		wrs[i] = verbs.RecvWR{WRID: r.id, NumSGE: uint32(len(r.sg)), SGList: e.sgList(r.sg)}
		if i+1 < len(rs) {
			wrs[i].Next = head + uint64(i+1)*verbs.SizeofRecvWR
		}
	}
	return head
}

// trySend posts the requests as one list, through the extended interface if one of them requires
// it.
func (q *QP) trySend(rs ...SR) (int, error) {
	return q.post(slices.ContainsFunc(rs, func(r SR) bool { return r.op.ExtendedOnly() }), rs)
}

// post posts the requests as one list. It overwrites the work requests afterwards: they belong to
// the caller again.
func (q *QP) post(extended bool, rs []SR) (int, error) {
	head := q.end.sendList(rs)
	t := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: q.QP, Head: head, Count: len(rs), Extended: extended}}}
	err := q.Context().Execute(&t)
	q.end.scribble(head, len(rs)*verbs.SizeofSendWR)
	g := &t.Sends[0]
	if err == nil && g.Errno != 0 {
		err = &verbs.OpError{Op: "post_send", Object: q.String(), Errno: g.Errno}
	}
	return g.Accepted, err
}

// tryRecv posts the receives as one list.
func (q *QP) tryRecv(rs ...RR) (int, error) {
	head := q.end.recvList(rs)
	n, err := verbs.PostRecv(q.QP, head, len(rs))
	q.end.scribble(head, len(rs)*verbs.SizeofRecvWR)
	return n, err
}

func (e *End) scribble(at uint64, n int) {
	if b, ok := e.scratch.Arena().Slice(at, n); ok && n > 0 {
		mem.Poison(b)
	}
}

// send posts the requests; all must be accepted.
func (q *QP) send(rs ...SR) {
	q.c.t.Helper()
	if n, err := q.trySend(rs...); err != nil || n != len(rs) {
		q.c.failf("post_send at %s accepted %d of %d: %v", q.end.name, n, len(rs), err)
	}
}

// recv posts the receives; all must be accepted.
func (q *QP) recv(rs ...RR) {
	q.c.t.Helper()
	if n, err := q.tryRecv(rs...); err != nil || n != len(rs) {
		q.c.failf("post_recv at %s accepted %d of %d: %v", q.end.name, n, len(rs), err)
	}
}

// wantErrno checks that a post was refused with one of the errnos.
func (c *Case) wantErrno(err error, what string, want ...syscall.Errno) {
	c.t.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	c.failf("%s answered %v, want one of %v", what, err, want)
}
