package reactor

// Idle calls fn one time, with the turn held, when the queue has no unposted requests, no
// outstanding requests and no undelivered results. Functions given to Idle and SendsIdle are called
// in the order in which they were given. Only the holder may call Idle.
func (q *Queue) Idle(fn func()) { q.whenIdle(fn, false) }

// SendsIdle is like Idle, but does not wait for receives: they may be unposted or outstanding when fn
// is called.
func (q *Queue) SendsIdle(fn func()) { q.whenIdle(fn, true) }

type idleCall struct {
	fn    func()
	sends bool // fn was given to SendsIdle
}

func (q *Queue) whenIdle(fn func(), sends bool) {
	q.idle = append(q.idle, idleCall{fn, sends})
	if !sends && !q.recvsIdle() {
		q.ready() // the next pass then posts the receives of PostRecvLater
	}
	q.checkIdle()
}

// checkIdle is called when requests have ended, and when a function was given to Idle.
func (q *Queue) checkIdle() {
	if q.backlog.unbindable && q.order.n == 0 {
		q.backlog.unbindable = false
		q.ready()
	}
	for len(q.idle) > 0 && q.sendsIdle() && (q.idle[0].sends || q.recvsIdle()) {
		fn := q.idle[0].fn
		q.idle = q.idle[1:]
		q.r.notifyLater(fn)
	}
}

func (q *Queue) sendsIdle() bool {
	return q.order.n == 0 && q.noSends()
}

func (q *Queue) recvsIdle() bool {
	return q.recvs == 0 && (q.recvStack == nil || q.recvStack.Empty())
}
