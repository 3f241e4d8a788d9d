package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// postRecv copies the receives of a group into the queue. It tells whether the
// engine has to run: only a queue pair in ERR, which flushes them.
//
//	EINVAL  no such queue pair here, RESET; number of elements; list too short;
//	        a shared receive queue
//	ENOMEM  the queue is full
//	EFAULT  a request or its elements are not in off-heap memory
//
// Implements: ibv_post_recv.
func (c *deviceContext) postRecv(g *verbs.RecvGroup) (ring bool) {
	g.Accepted, g.Errno = 0, 0
	q, ok := c.ownQP(g.QP)
	if !ok || g.SRQ != nil || verbs.QPState(q.state.Load()) == verbs.QPSReset {
		g.Errno = syscall.EINVAL
		return false
	}
	rq := q.rq.Load()
	head := rq.head.Load()
	room := rq.room(head)
	addr := g.Head
	n := 0
	for n < g.Count {
		var wr *verbs.RecvWR
		if wr, ok = q.recvWR(addr); !ok {
			g.Errno = syscall.EFAULT
			break
		}
		if uint64(n) == room {
			g.Errno = syscall.ENOMEM
			break
		}
		if g.Errno = q.fillRecv(rq, head+uint64(n), wr); g.Errno != 0 {
			break
		}
		n++
		if addr = wr.Next; addr == 0 && n < g.Count {
			g.Errno = syscall.EINVAL
			break
		}
	}
	g.Accepted = n
	if n == 0 {
		return false
	}
	rq.head.Store(head + uint64(n))
	// The engine stores ERR before it looks at head, we store head before we
	// look at the state: one of us sees the other, and nothing stays behind
	// unflushed.
	if verbs.QPState(q.state.Load()) != verbs.QPSErr {
		return false
	}
	q.ring()
	return true
}

func (q *queuePair) recvWR(addr uint64) (*verbs.RecvWR, bool) {
	if a := q.wrArena; a != nil {
		if wr, ok := mem.At[verbs.RecvWR](a, addr); ok {
			return wr, true
		}
	}
	a, ok := mem.Find(addr, verbs.SizeofRecvWR)
	if !ok {
		return nil, false
	}
	q.wrArena = a
	return mem.At[verbs.RecvWR](a, addr)
}

func (q *queuePair) fillRecv(rq *recvQueue, pos uint64, wr *verbs.RecvWR) syscall.Errno {
	if wr.NumSGE > rq.maxSGE {
		return syscall.EINVAL
	}
	sges, ok := q.list(wr.SGList, wr.NumSGE)
	if !ok {
		return syscall.EFAULT
	}
	var total uint64
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	copy(rq.sges(pos, wr.NumSGE), sges)
	*rq.at(pos) = recvWQE{wrID: wr.WRID, nsge: wr.NumSGE, size: total}
	return 0
}
