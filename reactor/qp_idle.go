package reactor

// Idle has fn called once, with the turn held, when the queue has no unposted and no outstanding
// request and all its results are delivered. Functions given to Idle and SendsIdle are called in
// the order in which they were given. Holder only.
func (q *Queue) Idle(fn func()) { q.whenIdle(fn, false) }

// SendsIdle is Idle for sends alone: receives may be unposted or outstanding.
func (q *Queue) SendsIdle(fn func()) { q.whenIdle(fn, true) }

type idleCall struct {
	fn    func()
	sends bool // given to SendsIdle
}

func (q *Queue) whenIdle(fn func(), sends bool) {
	q.idle = append(q.idle, idleCall{fn, sends})
	if !sends && !q.recvsIdle() {
		q.ready() // has the receives of PostRecvLater posted
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

func (q *Queue) sendsIdle() bool {
	return q.order.len() == 0 && q.noSends()
}

func (q *Queue) recvsIdle() bool {
	return q.recvs == 0 && (q.recvStack == nil || q.recvStack.Empty())
}
