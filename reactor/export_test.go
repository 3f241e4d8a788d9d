package reactor

// The places where a submitter may be when its queue is released, for tests: it
// has taken what Post, PostControl or PostRecv take, and has not looked at the
// queue's failure yet. The returned function gives that back, as a refused
// submitter does.

// SendUnderWay is a submitter in Post.
func (q *Queue) SendUnderWay() (back func()) {
	i, ok := q.sendFree.Get()
	if !ok {
		panic("no send slot")
	}
	return func() { q.sendFree.Put(i); q.scheduleReclaim() }
}

// ControlUnderWay is a submitter in PostControl.
func (q *Queue) ControlUnderWay() (back func()) {
	i, ok := q.ctrlFree.Get()
	if !ok {
		panic("no control slot")
	}
	return func() { q.ctrlFree.Put(i); q.scheduleReclaim() }
}

// RecvUnderWay is a submitter in PostRecv.
func (q *Queue) RecvUnderWay() (back func()) {
	i, ok := q.recvFree.Get()
	if !ok {
		panic("no receive slot")
	}
	return func() { q.recvFree.Put(i); q.scheduleReclaim() }
}

// ForgetAnswers makes the result words be as before the device wrote the answers of
// atomics. Holder only.
func (q *Queue) ForgetAnswers() {
	for i := range q.tab.results {
		q.tab.results[i] = unanswered
	}
}

// EventRest is how long a source that fails is let be.
const EventRest = suspendTime

// Snapshot is Stats for the holder.
// OutcomesOf is how many outcomes, free ones too, refer to q. Holder only.
func (r *Reactor) OutcomesOf(q *Queue) (n int) {
	for _, o := range r.outcomes[:cap(r.outcomes)] {
		if o.queue == q {
			n++
		}
	}
	return n
}

func (r *Reactor) Snapshot() Stats { return r.snapshot() }

// Sleeps is how often the loop went to sleep. Any goroutine.
func (r *Reactor) Sleeps() uint64 { return r.tok.Stats().Sleeps.Load() }

// Note counts v.
func (h *Histogram) Note(v int) { h.note(v) }

// ListingUnderWay is a submitter who found the queue not on the ready list, and has not
// pushed it there yet. The returned function goes on.
func (q *Queue) ListingUnderWay() (goOn func()) {
	if !q.queued.Enter() {
		panic("the queue is listed")
	}
	return func() { q.r.ready.Push((*readyQueue)(q)) }
}

// TransferHolding is what TransferWait does for one who got the turn, without the wait.
// Holder only.
func (q *Queue) TransferHolding(t *Transfer) Future {
	i, ok := q.sendFree.Get()
	if !ok {
		panic("no send slot")
	}
	_, f := q.r.futures.NewIn(&q.tab.slots[i].seat, q.r.driver)
	q.fillTransfer(i, t, kindOf(t.Opcode))
	q.add(i)
	q.r.ownBacklog = q
	q.r.pass(false)
	return f
}

// Pending reports whether a submission waits to be seen.
func (r *Reactor) Pending() bool { return (*work)(r).Pending() }

// Turn makes a turn. Holder only.
func (r *Reactor) Progress(arm bool) bool { return r.pass(arm) }

// SendDepth is how many sends may be outstanding.
func (q *Queue) SendDepth() int { return q.cfg.SendDepth }

// Policy is how the loop waits.
func (r *Reactor) Policy() Policy { return r.policy }
