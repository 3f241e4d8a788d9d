package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// XRC is RC with requests that name their shared receive queue in an extension header. So one
// connection between two processes serves all their queues.
//
//	XRC_SEND queue pair      requests with XRCETH      XRC_RECV queue pair ── its domain
//	(requester only)      ──────────────────────────>  (responder only)         │ same
//	                      <──────────────────────────  shared receive queue ────┘
//	                         answers, without             keys: its protection domain
//	                                                      completions: its queue
//
// Both halves are those of RC; this file has the differences. rdma_rxe has no XRC.
//
// Implements: IBTA volume 1, annex A14.

// maxSRQN is the greatest number of a shared receive queue: 24 bits.
const maxSRQN = 1<<24 - 1

// addXRC numbers an XRC shared receive queue. Numbers grow, so that a late packet does not reach
// a new queue. The caller holds the token.
func (d *device) addXRC(s *sharedQueue) {
	if d.xrcSRQs == nil {
		d.xrcSRQs = map[uint32]*sharedQueue{}
	}
	for {
		if d.lastSRQN++; d.lastSRQN > maxSRQN {
			d.lastSRQN = 1 // 0 names no queue
		}
		if d.xrcSRQs[d.lastSRQN] == nil {
			break
		}
	}
	s.srqn = d.lastSRQN
	d.xrcSRQs[s.srqn] = s
}

// dropXRC removes an XRC shared receive queue from the queue pairs that receive a message to it:
// their next packet finds no queue.
func (d *device) dropXRC(s *sharedQueue) {
	delete(d.xrcSRQs, s.srqn)
	d.eachQP(func(q *queuePair) {
		if q.xrc == nil {
			return
		}
		if q.resp.to == s {
			q.resp.to = nil
		}
		if q.resp.recv.srq == s {
			q.resp.recv = receive{}
		}
	})
}

// named returns the shared receive queue that a request names, nil when the queue pair's domain
// has none with that number.
func (q *queuePair) named(h *wire.Header) *sharedQueue {
	if s := q.resp.to; s != nil && s.srqn == h.XRCSRQ {
		return s
	}
	if s := q.dev.xrcSRQs[h.XRCSRQ]; s != nil && s.xrcd.dom == q.xrc {
		return s
	}
	return nil
}

// addressed directs a request to the shared receive queue that it names: until the next request,
// that queue's protection domain is the queue pair's. If ok is false, code is the reason.
//
// An unknown number and that of another domain look the same to a peer, which must not learn
// which queues exist: both are an invalid request (A14, invalid XRCETH and XRC domain violation).
// A queue in error accepts no request. All packets of a message go to one queue.
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

// addressedAgain is addressed for a repeated request, which may arrive in the middle of a later
// message to another queue. It returns false if its queue is gone.
func (q *queuePair) addressedAgain(h *wire.Header) bool {
	s := q.named(h)
	if s != nil {
		q.pd = s.pd
	}
	return s != nil
}

// refuseAddress refuses a request without a valid queue. A message in progress completes its
// receive, if that still exists.
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
		q.resp.kind = noMessage // no receive to complete: an event reports it
	}
	q.refuse(psn, code)
}

// fail ends an XRC shared receive queue whose completion queue is dead, so that no receive can
// complete any more.
//
// Implements: IBTA volume 1, 11.6.3.4 (SRQ catastrophic error).
func (s *sharedQueue) fail() {
	if !s.failed {
		s.failed = true
		s.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventSRQErr, SRQ: s})
	}
}

// raise raises an asynchronous event of a queue pair, on every handle of an XRC_RECV one.
func (q *queuePair) raise(t verbs.AsyncEventType) {
	if q.xrc == nil {
		q.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: q})
		return
	}
	for _, r := range q.handles {
		r.x.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: r})
	}
}
