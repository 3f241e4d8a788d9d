package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Modify changes the state or sets attributes. A refused call changes nothing: the error of an
// illegal transition wraps [verbs.ErrInvalidTransition], that of a wrong value
// [verbs.ErrInvalid].
//
// Implements: ibv_modify_qp.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) (err error) {
	if e := q.ctx.exclusive("ibv_modify_qp", func() { err = q.modify(attr, mask) }); e != nil {
		return e
	}
	return err
}

// modify implements Modify. The caller holds the token.
func (q *queuePair) modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const op = "ibv_modify_qp"
	if q.closed.Load() {
		return opError(op, q.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
	}
	from := q.current()
	to := from
	if mask&verbs.QPMState != 0 {
		to = attr.State
	}
	if mask&verbs.QPMCurState != 0 && attr.CurState != from {
		return opError(op, q.String(), syscall.EINVAL, "%w: the state is %v, not %v", verbs.ErrInvalidTransition, from, attr.CurState)
	}
	if err := verbs.CheckTransition(q.kind, from, to, mask); err != nil {
		return opError(op, q.String(), syscall.EINVAL, "%w", err)
	}
	if err := q.checkValues(attr, mask); err != nil {
		return opError(op, q.String(), syscall.EINVAL, "%w", err)
	}
	switch to {
	case verbs.QPSReset:
		q.reset(&q.granted)
		return nil
	case verbs.QPSErr:
		q.enterError()
		return nil
	}
	q.take(attr, mask)
	switch {
	case from == verbs.QPSInit && to == verbs.QPSRTR && !q.service.reliable:
		q.beginUnreliable()
	case from == verbs.QPSSQE && to == verbs.QPSRTS:
		q.flushSends() // requests posted before are flushed
	case from == verbs.QPSInit && to == verbs.QPSRTR:
		q.takeRoute()
		q.mtu = min(q.attr.PathMTU.Bytes(), ceilMsgSize)
		q.resp.begin(&q.attr)
	case from == verbs.QPSRTR && to == verbs.QPSRTS:
		proven := q.resp.established || q.dev.cm.proves(q)
		q.req.begin(&q.attr, newWindow(q.route.Uplink(), proven, q.mtu))
		if proven || !q.service.reliable { // unreliable services have no acknowledgements that could prove the address
			q.dev.connect(q.route.Far())
		}
	case from == verbs.QPSRTS && to == verbs.QPSSQD:
		q.attr.SQDraining = true
		q.req.notifyDrained = mask&verbs.QPMEnSQDAsyncNotify != 0 && attr.EnSQDAsyncNotify
	case from == verbs.QPSSQD && to == verbs.QPSRTS:
		q.attr.SQDraining = false
	}
	if from == verbs.QPSSQD && mask&verbs.QPMAV != 0 {
		q.takeRoute()
	}
	q.enter(to)
	return nil
}

// takeRoute sets the route from the path that the connection manager has found, or from the address
// vector.
func (q *queuePair) takeRoute() {
	q.giveRoute()
	path := q.path
	if path == (wire.Path{}) {
		path = q.dev.pathOf(&q.attr.AH)
	}
	q.route = q.dev.p.Route(path)
	q.trafficClass = q.attr.AH.TrafficClass
	q.qualify()
}

// giveRoute releases the route, if there is one.
func (q *queuePair) giveRoute() {
	q.unstall()
	q.dev.p.Unroute(q.route)
	q.route = nil
	q.qualify()
}

// current returns the state.
func (q *queuePair) current() verbs.QPState { return verbs.QPState(q.state.Load()) }

// setState sets the state. The caller holds the token.
func (q *queuePair) setState(s verbs.QPState) {
	q.state.Store(uint32(s))
	q.qualify()
}

// enter sets the state and activates the queue pair.
func (q *queuePair) enter(s verbs.QPState) {
	q.setState(s)
	q.dev.activate(q)
}

// take copies the attributes that mask selects.
func (q *queuePair) take(a *verbs.QPAttr, mask verbs.QPAttrMask) {
	t := &q.attr
	for _, s := range []struct {
		bit verbs.QPAttrMask
		set func()
	}{
		{verbs.QPMAccessFlags, func() { t.AccessFlags = a.AccessFlags }},
		{verbs.QPMPKeyIndex, func() { t.PKeyIndex = a.PKeyIndex }},
		{verbs.QPMPort, func() { t.Port = a.Port }},
		{verbs.QPMQKey, func() { t.QKey = a.QKey }},
		{verbs.QPMAV, func() { t.AH = a.AH }},
		{verbs.QPMPathMTU, func() { t.PathMTU = a.PathMTU }},
		{verbs.QPMTimeout, func() { t.Timeout = a.Timeout }},
		{verbs.QPMRetryCnt, func() { t.RetryCnt = a.RetryCnt }},
		{verbs.QPMRNRRetry, func() { t.RNRRetry = a.RNRRetry }},
		{verbs.QPMRQPSN, func() { t.RQPSN = a.RQPSN }},
		{verbs.QPMSQPSN, func() { t.SQPSN = a.SQPSN }},
		{verbs.QPMMaxQPRdAtomic, func() { t.MaxRdAtomic = a.MaxRdAtomic }},
		{verbs.QPMMaxDestRdAtomic, func() { t.MaxDestRdAtomic = a.MaxDestRdAtomic }},
		{verbs.QPMMinRNRTimer, func() { t.MinRNRTimer = a.MinRNRTimer }},
		{verbs.QPMDestQPN, func() { t.DestQPN = a.DestQPN }},
		{verbs.QPMEnSQDAsyncNotify, func() { t.EnSQDAsyncNotify = a.EnSQDAsyncNotify }},
		{verbs.QPMAltPath, func() {
			t.AltAH, t.AltPKeyIndex, t.AltPort, t.AltTimeout = a.AltAH, a.AltPKeyIndex, a.AltPort, a.AltTimeout
		}},
	} {
		if mask&s.bit != 0 {
			s.set()
		}
	}
}

// Query returns all attributes.
//
// Implements: ibv_query_qp.
func (q *queuePair) Query() (a verbs.QPAttr, err error) {
	const op = "ibv_query_qp"
	if e := q.ctx.exclusive(op, func() {
		if q.closed.Load() {
			err = opError(op, q.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
			return
		}
		a = q.attributes()
	}); e != nil {
		return a, e
	}
	return a, err
}

// attributes implements Query. The caller holds the token.
func (q *queuePair) attributes() verbs.QPAttr {
	a := q.attr
	a.State = q.current()
	a.CurState, a.Cap = a.State, q.granted
	return a
}

// reset clears the queue pair: work queues, connection, attributes. Its unpolled completions
// become stale. The new queues have the capacity c.
func (q *queuePair) reset(c *verbs.QPCap) {
	q.abandon()
	q.giveRoute()
	q.dropRecv()
	if sq := q.sq.Load(); sq != nil {
		sq.dead.Store(true)
		q.rq.Load().dead.Store(true)
	}
	q.sq.Store(newSendQueue(c, q.sigAll))
	rq := noReceives
	if c.MaxRecvWR > 0 {
		rq = newRecvQueue(c.MaxRecvWR, c.MaxRecvSGE)
	}
	q.rq.Store(rq)
	q.attr = verbs.QPAttr{}
	q.req, q.resp = requester{}, responder{out: q.resp.out[:0], results: q.resp.results[:0]}
	q.guard = new(guard)
	if !q.service.reliable {
		q.pace = &pace{q: q}
	}
	q.setState(verbs.QPSReset)
}

// abandon ends all sending: afterwards no engine reads memory of this queue pair's requests, and
// no timer fires.
func (q *queuePair) abandon() {
	if q.guard != nil {
		q.dev.retire(q.guard)
	}
	q.deadline = 0
	q.dev.timers.stop(q)
	q.unstall()
	q.req.rnrWait, q.req.noRoom = false, false
	if q.resp.ackDue && q.mayOwe() { // owed, or to be owed at the end of this run
		q.sendDueAck()
	}
	q.resp.stop()
	for _, at := range []**diskJob{&q.resp.disk, &q.resp.reading, &q.req.reading, &q.req.storing} {
		q.forget(at)
	}
}

// enterError moves the queue pair to ERR. The engine flushes its requests when it next works on
// it.
func (q *queuePair) enterError() {
	if s := q.current(); s == verbs.QPSErr || q.closed.Load() {
		return
	}
	q.abandon()
	q.enter(verbs.QPSErr)
}

// revoke invalidates the packets in flight, because a region they point into is being closed, and
// sends their requests again; requests that need the region then fail.
func (q *queuePair) revoke() {
	q.dev.retire(q.guard)
	if q.current() == verbs.QPSErr {
		return
	}
	q.guard = new(guard)
	if r := &q.req; r.next > r.acked && !r.rnrWait {
		r.seek(q.sq.Load(), r.acked)
		q.dev.activate(q)
	}
}
