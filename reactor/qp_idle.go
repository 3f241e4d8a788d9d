package reactor

// Idle calls fn once, with the turn held, as soon as no request of the queue is unposted or
// outstanding and all results are delivered. Holder only.
func (q *Queue) Idle(fn func()) { q.whenIdle(fn, false) }

// SendsIdle is Idle for sends alone: receives may be outstanding.
func (q *Queue) SendsIdle(fn func()) { q.whenIdle(fn, true) }

type idleCall struct {
	fn    func()
	sends bool // receives do not count
}

func (q *Queue) whenIdle(fn func(), sends bool) {
	q.idle = append(q.idle, idleCall{fn, sends})
	if !sends && !q.recvsIdle() {
		q.ready() // PostRecvLater does not put the queue on the ready list
	}
	q.checkIdle()
}

func (q *Queue) checkIdle() {
	for len(q.idle) > 0 && q.sendsIdle() && (q.idle[0].sends || q.recvsIdle()) {
		fn := q.idle[0].fn
		q.idle = q.idle[1:]
		q.r.notifyLater(fn)
	}
}

// sendsIdle and recvsIdle report whether no request is outstanding or waits to be posted.
func (q *Queue) sendsIdle() bool {
	return q.order.len() == 0 && q.noSends()
}

func (q *Queue) recvsIdle() bool {
	return q.recvs == 0 && (q.recvStack == nil || q.recvStack.Empty())
}
