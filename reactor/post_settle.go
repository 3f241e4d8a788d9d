package reactor

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// The functions of this file handle the results of posting. Only the holder of the turn calls them.

// settlePosts handles the results of posting the pass's lists. If the device refused a request of a
// list (bad_wr), the requests before bad_wr are outstanding; bad_wr and the later requests end with
// an error. The argument turnErr is the error of Execute. If turnErr is not nil, nothing was posted.
func (r *Reactor) settlePosts(turnErr error) {
	for k := range r.batch.Sends {
		g, q := &r.batch.Sends[k], r.sendOwners[k]
		r.sendOwners[k] = nil // do not keep a released queue alive
		if turnErr != nil {
			g.Accepted = 0
		}
		r.stats.Doorbells++
		r.stats.WorkRequests += uint64(g.Accepted)
		r.stats.MaxBatch = max(r.stats.MaxBatch, uint64(g.Accepted))
		r.stats.Lists.note(g.Accepted)
		out := q.order.n
		r.stats.Occupancy.note(out)
		r.stats.MaxOutstanding = max(r.stats.MaxOutstanding, uint64(out))
		if g.Accepted < g.Count {
			q.postFailed(g.Count-g.Accepted, "ibv_post_send", g.Errno, turnErr)
			if g.Accepted > 0 && q.cfg.SignalEvery > 1 {
				q.postMarker()
			}
		}
	}
	for k := range r.batch.Recvs {
		g, q := &r.batch.Recvs[k], r.recvOwners[k]
		r.recvOwners[k] = nil
		if turnErr != nil {
			g.Accepted = 0
		}
		r.stats.RecvDoorbells++
		r.stats.RecvRequests += uint64(g.Accepted)
		if g.Accepted < g.Count {
			q.recvPostFailed(r.recvFirst[k], g.Count, g.Accepted, postError(q.recvCall(), q, g.Errno, turnErr))
		}
	}
	r.sendOwners, r.recvOwners, r.recvFirst = r.sendOwners[:0], r.recvOwners[:0], r.recvFirst[:0]
}

// recvCall returns the name of the C function that posts the queue's receives.
func (q *Queue) recvCall() string {
	if q.srq != nil {
		return "ibv_post_srq_recv"
	}
	return "ibv_post_recv"
}

// postError returns the error of requests that the device refused. If the queue has failed, the queue pair is in ERR,
// where most devices take requests and flush them, and some refuse them (rdma-core providers/erdma/erdma_verbs.c,
// erdma_post_send): both are a flush, with the queue's error as the cause.
func postError(op string, q *Queue, errno syscall.Errno, turnErr error) error {
	if cause := q.failed.get(); cause != nil && turnErr == nil && q.srq == nil {
		return &verbs.WCError{Status: verbs.WCWRFlushErr, QPNum: q.qpn, Op: op, Cause: cause}
	}
	return &verbs.OpError{Op: op, Object: q.name(), Errno: errno, Err: turnErr}
}

// postFailed ends the last n requests of q.order, which the device refused, with an error.
func (q *Queue) postFailed(n int, op string, errno syscall.Errno, turnErr error) {
	q.r.stats.PostFailures++
	err := postError(op, q, errno, turnErr)
	q.r.outstanding -= n
	for _, i := range q.order.cut(n) {
		q.finish(i, Completion{}, err)
	}
	q.freeRetired()
	q.checkIdle()
	q.sincesig = q.order.n
}

func (q *Queue) recvPostFailed(first uint32, count, accepted int, err error) {
	q.r.stats.PostFailures++
	q.recvs -= count - accepted
	for i, k := first, 0; k < count; k++ {
		next := uint32(0)
		if k < count-1 {
			next = q.links.Next(i)
		}
		if k >= accepted {
			q.finish(i, Completion{Kind: KindRecv}, err)
		}
		i = next
	}
	q.freeRetired()
	q.checkIdle()
}

// postMarker posts the marker, a signaled zero-length WRITE, when the device accepted only the first
// part of a list. The signaled request at the end of the list was refused, and there may be no later
// request, so only the marker's completion is sure to retire the first part. If the device also
// refuses the marker, or there is no memory for it, postMarker fails the queue and notifies the queue's owner. Then the outstanding
// requests end when they are flushed, or in Release at the latest.
//
// A queue has one marker. If it is outstanding, because an earlier list was cut too, it does not retire the requests
// that the device accepted since: freeSlot calls postMarker again when the outstanding marker has completed.
func (q *Queue) postMarker() {
	if q.remark = q.marker; q.marker || q.order.n == 0 {
		return
	}
	i := uint32(q.cfg.SendDepth)
	ch, err := q.tab.make(i)
	if err != nil {
		q.strand(err)
		return
	}
	sl := &ch.slots[i%chunkSlots]
	sl.kind, sl.posted, ch.bytes[i%chunkSlots] = KindMarker, true, 0
	w := &ch.requests[i%chunkSlots]
	*w = verbs.SendWR{WRID: packWRID(q.id, i, sl.gen, KindMarker), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
	if q.rec != nil {
		sl.opcode = uint8(w.Opcode)
		q.rec.marked(q.r, i)
	}
	n, err := verbs.PostSend(q.qp, ch.address(i), 1)
	if n == 1 {
		q.marker = true
		q.order.push(i, i, 1)
		q.r.outstanding++
		return
	}
	sl.kind, sl.posted = KindNone, false
	q.strand(err)
}

// strand fails the queue, because its outstanding sends have no signaled request behind them.
func (q *Queue) strand(err error) {
	q.r.stats.Stranded += uint64(q.order.n)
	q.breakWith(err)
}

// refuse ends n submitted requests that were not posted, with the error of the queue. The oldest
// request is in slot first, and the links lead from it to the others.
func (q *Queue) refuse(first uint32, n int) {
	err := q.failed.get()
	if q.quarantine != nil {
		err = q.quarantine.err
	} else if err == nil {
		err = errNotOpen
	}
	for i := first; n > 0; n-- {
		after := uint32(0)
		if n > 1 {
			after = q.links.Next(i)
		}
		q.finish(i, Completion{}, err)
		i = after
	}
	q.freeRetired()
	q.checkIdle()
}
