package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// XRC is RC whose requests name the shared receive queue they go to, in an
// extension header of every request. So one connection between two processes
// serves all their queues.
//
//	XRC_SEND queue pair      requests with XRCETH      XRC_RECV queue pair ── its domain
//	(requester only)      ──────────────────────────>  (responder only)         │ same
//	                      <──────────────────────────  shared receive queue ────┘
//	                         answers, without             keys: its protection domain
//	                                                      completions: its queue
//
// Both halves are those of RC; here is what differs. rdma_rxe has no XRC.
//
// Implements: IBTA volume 1, annex A14.

// maxSRQN is the greatest number of a shared receive queue: 24 bits.
const maxSRQN = 1<<24 - 1

// addXRC numbers an XRC shared receive queue. Numbers grow, so that a late
// packet does not meet a new queue. The engine is at rest.
func (d *device) addXRC(s *sharedQueue) {
	if d.xrcSRQs == nil {
		d.xrcSRQs = map[uint32]*sharedQueue{}
	}
	for {
		if d.lastSRQN++; d.lastSRQN > maxSRQN {
			d.lastSRQN = 1 // 0 names none
		}
		if d.xrcSRQs[d.lastSRQN] == nil {
			break
		}
	}
	s.srqn = d.lastSRQN
	d.xrcSRQs[s.srqn] = s
}

// dropXRC takes an XRC shared receive queue away from those who may be in the
// middle of a message to it: their next packet finds no queue.
func (d *device) dropXRC(s *sharedQueue) {
	delete(d.xrcSRQs, s.srqn)
	for _, q := range d.qps {
		if q == nil || q.xrc == nil {
			continue
		}
		if q.resp.to == s {
			q.resp.to = nil
		}
		if q.resp.recv.srq == s {
			q.resp.recv = receive{}
		}
	}
}

// named is the shared receive queue that a request names, nil when there is none
// in the queue pair's domain.
func (q *queuePair) named(h *wire.Header) *sharedQueue {
	if s := q.resp.to; s != nil && s.srqn == h.XRCSRQ {
		return s
	}
	if s := q.dev.xrcSRQs[h.XRCSRQ]; s != nil && s.xrcd.dom == q.xrc {
		return s
	}
	return nil
}

// addressed has a request go to the shared receive queue that it names: until
// the next one, its protection domain is the queue pair's. code says why not.
//
// An unknown number and another domain's are one to a peer, which must not
// learn what there is: an invalid request (A14, invalid XRCETH and XRC domain
// violation). A queue in error cannot take anything any more. All packets of a
// message go to one queue.
func (q *queuePair) addressed(h *wire.Header) (code wire.NakCode, ok bool) {
	s := q.named(h)
	if s == nil || (q.resp.kind != noMessage && s != q.resp.to) {
		return wire.NakInvalid, false
	}
	if s.failed {
		return wire.NakOperation, false
	}
	q.resp.to, q.pd = s, s.pd
	return 0, true
}

// addressedAgain is addressed for a request that comes again, maybe in the middle
// of a later message to another queue; false says that its queue is gone.
func (q *queuePair) addressedAgain(h *wire.Header) bool {
	s := q.named(h)
	if s != nil {
		q.pd = s.pd
	}
	return s != nil
}

// refuseAddress refuses a request that goes to no queue. A message that had
// begun completes its receive, if that is still there.
func (q *queuePair) refuseAddress(psn uint64, code wire.NakCode) {
	if code == wire.NakOperation {
		if q.resp.recv.rq != nil {
			q.completeRecvError(verbs.WCLocQPOpErr, vendorRecv)
		}
		q.raise(verbs.EventQPFatal)
		q.giveUp(psn, code)
		return
	}
	if q.resp.recv.rq == nil {
		q.resp.kind = noMessage // nothing to complete: an event tells
	}
	q.refuse(psn, code)
}

// fail ends an XRC shared receive queue whose completion queue is dead: nothing
// can complete any more.
//
// Implements: IBTA volume 1, 11.6.3.4 (SRQ catastrophic error).
func (s *sharedQueue) fail() {
	if !s.failed {
		s.failed = true
		s.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventSRQErr, SRQ: s})
	}
}

// raise tells the owners of a queue pair that something happened to it.
func (q *queuePair) raise(t verbs.AsyncEventType) {
	if q.xrc == nil {
		q.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: q})
		return
	}
	for _, r := range q.handles {
		r.x.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: r})
	}
}
