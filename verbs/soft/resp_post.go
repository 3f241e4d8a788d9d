package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// postRecv copies the receives of a group into its queue. It reports whether the engine has to
// run: only for a queue pair in ERR, which flushes them.
//
//	EINVAL  no such queue pair or shared queue here; RESET; a queue pair that
//	        uses a shared queue; number of elements; list too short
//	ENOMEM  the queue is full
//	EFAULT  a request or its elements are not in off-heap memory
//
// Implements: ibv_post_recv, ibv_post_srq_recv.
func (c *deviceContext) postRecv(g *verbs.RecvGroup) (ring bool) {
	g.Accepted, g.Errno = 0, 0
	if g.SRQ != nil {
		s, ok := c.ownSRQ(g.SRQ)
		if !ok {
			g.Errno = syscall.EINVAL
			return false
		}
		s.wrs.fill(s.rq.Load(), g)
		return false
	}
	q, ok := c.ownQP(g.QP)
	if !ok || q.srq != nil || verbs.QPState(q.state.Load()) == verbs.QPSReset {
		g.Errno = syscall.EINVAL
		return false
	}
	q.recvWRs.fill(q.rq.Load(), g)
	// The engine stores ERR before it reads head, and the poster stores head before it reads the
	// state: one of them sees the other, so that no receive stays unflushed.
	if g.Accepted == 0 || verbs.QPState(q.state.Load()) != verbs.QPSErr {
		return false
	}
	q.ringDoorbell()
	return true
}

// fill copies the receives of a group into rq and publishes them.
func (m *wrMemory) fill(rq *recvQueue, g *verbs.RecvGroup) {
	head := rq.head.Load()
	room := rq.room(head)
	addr := g.Head
	n := 0
	for n < g.Count {
		wr, ok := m.recv(addr)
		if !ok {
			g.Errno = syscall.EFAULT
			break
		}
		place, ok := rq.claim(head+uint64(n), uint64(n) < room)
		if !ok {
			g.Errno = syscall.ENOMEM
			break
		}
		if g.Errno = m.fillRecv(rq, place, wr); g.Errno != 0 {
			rq.unclaim(place)
			break
		}
		n++
		if addr = wr.Next; addr == 0 && n < g.Count {
			g.Errno = syscall.EINVAL
			break
		}
	}
	if g.Accepted = n; n > 0 {
		rq.head.Store(head + uint64(n))
	}
}

// fillRecv copies a request to a slot that is not yet published.
func (m *wrMemory) fillRecv(rq *recvQueue, place uint64, wr *verbs.RecvWR) syscall.Errno {
	if wr.NumSGE > rq.maxSGE {
		return syscall.EINVAL
	}
	sges, ok := m.list(wr.SGList, wr.NumSGE)
	if !ok {
		return syscall.EFAULT
	}
	var total uint64
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	copy(rq.sges(place, wr.NumSGE), sges)
	*rq.at(place) = recvWQE{wrID: wr.WRID, nsge: wr.NumSGE, size: total}
	return 0
}
