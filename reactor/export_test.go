package reactor

// Each of the next three functions leaves a submitter in the middle of Submit, PostControl or
// PostRecv: it has acquired a slot and has not checked yet whether the queue has failed. The
// returned function frees the slot, as a refused submitter does.

// SendUnderWay leaves a submitter in Submit.
func (q *Queue) SendUnderWay() (back func()) {
	i, ok := q.sendFree.Get()
	if !ok {
		panic("no send slot")
	}
	return func() { q.sendFree.Put(i); q.scheduleReclaim() }
}

// ControlUnderWay leaves a submitter in PostControl.
func (q *Queue) ControlUnderWay() (back func()) {
	i, ok := q.ctrlFree.Get()
	if !ok {
		panic("no control slot")
	}
	return func() { q.ctrlFree.Put(i); q.scheduleReclaim() }
}

// RecvUnderWay leaves a submitter in PostRecv.
func (q *Queue) RecvUnderWay() (back func()) {
	i, ok := q.recvFree.Get()
	if !ok {
		panic("no receive slot")
	}
	return func() { q.recvFree.Put(i); q.scheduleReclaim() }
}

// ForgetAnswers resets every result word of the queue to unanswered, as if the device had written
// no result of an atomic. Only the holder may call it.
func (q *Queue) ForgetAnswers() {
	for i := range q.tab.results {
		q.tab.results[i] = unanswered
	}
}

// EventRest is how long an event source that failed stays suspended.
const EventRest = suspendTime

// OutcomesOf counts the entries of r.outcomes that refer to q, including unused entries behind its
// length. Only the holder may call it.
func (r *Reactor) OutcomesOf(q *Queue) (n int) {
	for _, o := range r.outcomes[:cap(r.outcomes)] {
		if o.queue == q {
			n++
		}
	}
	return n
}

func (r *Reactor) Snapshot() Stats { return r.snapshot() }

// Sleeps returns how often the loop went to sleep. Any goroutine may call it.
func (r *Reactor) Sleeps() uint64 { return r.tok.Stats().Sleeps.Load() }

// Note counts v.
func (h *Histogram) Note(v int) { h.note(v) }

// ListingUnderWay leaves a submitter between its two steps of putting the queue on the ready list.
// It takes the first step (Enter); the returned function takes the second (Push).
func (q *Queue) ListingUnderWay() (goOn func()) {
	if !q.queued.Enter() {
		panic("the queue is listed")
	}
	return func() { q.r.ready.Push((*readyQueue)(q)) }
}

// TransferHolding takes the steps of TransferWait after Begin has taken the turn, except the wait.
// Only the holder may call it.
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

// Pending reports whether a submission waits for a pass.
func (r *Reactor) Pending() bool { return (*work)(r).Pending() }

// Progress runs a pass. Only the holder may call it.
func (r *Reactor) Progress(arm bool) bool { return r.pass(arm) }

// SendDepth returns how many sends may be outstanding.
func (q *Queue) SendDepth() int { return q.cfg.SendDepth }

// Policy returns the loop's wait policy.
func (r *Reactor) Policy() Policy { return r.policy }
