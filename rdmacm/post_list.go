package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// RecvWR is one receive of a list. The calls that post it copy it.
//
// Implements: struct ibv_recv_wr.
type RecvWR struct {
	WRID uint64
	SGL  []verbs.SGE
}

// SendWR is one request of a list for the send queue: SEND, WRITE, each with immediate data or without,
// SEND_WITH_INV, READ or LOCAL_INV. Which members are read depends on the opcode. The calls that post it
// copy it. Atomics and FLUSH are in package runtime: here the old value of the remote word would have no
// way back.
//
// Implements: struct ibv_send_wr.
type SendWR struct {
	WRID   uint64
	SGL    []verbs.SGE
	Opcode verbs.WROpcode
	Flags  verbs.SendFlags
	Imm    uint32 // host order
	Remote uint64 // READ, WRITE
	RKey   uint32
	// Invalidate is the key that SEND_WITH_INV invalidates at the peer, and LOCAL_INV here.
	Invalidate uint32
	AH         verbs.AH
	RemoteQPN  uint32 // datagrams
	RemoteQKey uint32
	RemoteSRQN uint32 // XRC_SEND: the shared receive queue that takes a message
}

// PostRecvList posts receives, in the order of the list, with one doorbell as far as possible. It stops
// at the first request that cannot be posted, and returns how many it has posted: list[posted] is the C
// function's bad_wr, and neither it nor a later one is posted. If the queue pair has a shared receive
// queue, the error is verbs.ErrInvalid: PostSRQRecv is for that. It waits as PostRecv does.
//
// Implements: ibv_post_recv.
func (id *ID) PostRecvList(list []RecvWR) (posted int, err error) {
	if id == nil {
		return 0, errNil("ibv_post_recv")
	}
	const op = "ibv_post_recv"
	p := id.qp.Load()
	switch {
	case p == nil:
		return 0, named(op, id, ErrNoQP)
	case p.srq != nil || p.q == nil:
		return 0, failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the queue pair has a shared receive queue", verbs.ErrInvalid))
	}
	for posted < len(list) && err == nil {
		if _, err = id.submitRecv(list[posted].WRID, list[posted].SGL); err == nil {
			posted++
		}
	}
	return posted, named(op, id, errors.Join(err, p.dev.posted()))
}

// PostSRQRecv posts receives to the shared receive queue, which completes them in any order. In all
// other respects it is like ID.PostRecvList.
//
// Implements: ibv_post_srq_recv.
func (s *SRQ) PostSRQRecv(list []RecvWR) (posted int, err error) {
	if s == nil {
		return 0, errNil("ibv_post_srq_recv")
	}
	for posted < len(list) && err == nil {
		if err = s.submit(list[posted].WRID, list[posted].SGL); err == nil {
			posted++
		}
	}
	return posted, named("ibv_post_srq_recv", nil, errors.Join(err, s.dev.posted()))
}

// PostSendList posts requests to the send queue. In all other respects it is like PostRecvList.
//
// Implements: ibv_post_send.
func (id *ID) PostSendList(list []SendWR) (posted int, err error) {
	if id == nil {
		return 0, errNil("ibv_post_send")
	}
	const op = "ibv_post_send"
	var p *queuePair
	for posted < len(list) && err == nil {
		w := &list[posted]
		s := reactor.Send{
			Opcode: w.Opcode, Tag: w.WRID, Imm: w.Imm, Remote: w.Remote, RKey: w.RKey, Invalidate: w.Invalidate, RemoteSRQ: w.RemoteSRQN,
			To: reactor.Dest{AH: w.AH, QPNum: w.RemoteQPN, QKey: w.RemoteQKey},
		}
		var now *queuePair
		if now, err = id.ready(); err != nil {
			break
		}
		if err = now.submitGathered(&s, w.SGL, w.Flags); err == nil {
			p = now
			posted++
		}
	}
	if p != nil {
		p.dev.flush()
	}
	return posted, named(op, id, err)
}
