package reactor

// SendUnderWay acquires a send slot, which is the first step of Submit. It omits the second step, which
// checks whether the queue has failed. The returned function frees the slot, as Submit does if the queue
// has failed.
func (q *Queue) SendUnderWay() (back func()) {
	i, ok := q.sendFree.Get()
	if !ok {
		panic("no send slot")
	}
	return func() { q.sendFree.Put(i); q.scheduleReclaim() }
}

// ControlUnderWay is like SendUnderWay, for PostControl.
func (q *Queue) ControlUnderWay() (back func()) {
	i, ok := q.ctrlFree.Get()
	if !ok {
		panic("no control slot")
	}
	return func() { q.ctrlFree.Put(i); q.scheduleReclaim() }
}

// RecvUnderWay is like SendUnderWay, for PostRecv.
func (q *Queue) RecvUnderWay() (back func()) {
	i, ok := q.recvFree.Get()
	if !ok {
		panic("no receive slot")
	}
	return func() { q.recvFree.Put(i); q.scheduleReclaim() }
}

// ForgetAnswers sets every result word of the queue to the value of the variable unanswered, as if
// the device had not written the result of any atomic. Only the holder may call it.
func (q *Queue) ForgetAnswers() {
	for i := range q.tab.chunks {
		if c := q.tab.chunks[i].Load(); c != nil {
			for k := range c.block.results {
				c.block.results[k] = unanswered
			}
		}
	}
}

// EventRest is how long an event source that failed stays suspended.
const EventRest = suspendTime

// OutcomesOf counts the entries of r.outcomes that refer to q. It includes the entries between the
// length and the capacity of the slice. Only the holder may call it.
func (r *Reactor) OutcomesOf(q *Queue) (n int) {
	for _, o := range r.outcomes[:cap(r.outcomes)] {
		if o.queue == q {
			n++
		}
	}
	return n
}

// Snapshot returns the counters like Stats, but does not take the turn. The caller must hold the turn,
// or be the only goroutine that uses a stepped reactor.
func (r *Reactor) Snapshot() Stats { return r.snapshot() }

// Sleeps returns how often the loop went to sleep. Any goroutine may call it.
func (r *Reactor) Sleeps() uint64 { return r.tok.Stats().Sleeps.Load() }

// Note adds the value v to the histogram.
func (h *Histogram) Note(v int) { h.note(v) }

// ListingUnderWay does the first of the two steps that put q on the ready list (q.queued.Enter).
// The returned function does the second step (ready.Push).
func (q *Queue) ListingUnderWay() (goOn func()) {
	if !q.queued.Enter() {
		panic("the queue is on the ready list already")
	}
	return func() { q.r.ready.Push((*readyQueue)(q)) }
}

// TransferHolding submits t as TransferWait does after it has taken the turn, but does not wait for the
// outcome. Only the holder may call TransferHolding.
func (q *Queue) TransferHolding(t *Transfer) Future {
	i, ok := q.sendFree.Get()
	if !ok {
		panic("no send slot")
	}
	ch, err := q.tab.make(i)
	if err != nil {
		panic(err)
	}
	_, f := q.r.futures.NewIn(&ch.slots[i%chunkSlots].seat, q.r.driver)
	q.fillTransfer(i, ch, t, kindOf(t.Opcode))
	q.add(i)
	q.r.ownBacklog = q
	q.r.pass(false)
	return f
}

// Pending reports whether a submission waits for a pass.
func (r *Reactor) Pending() bool { return (*work)(r).Pending() }

// Progress runs a pass. Only the holder may call it.
func (r *Reactor) Progress(arm bool) bool { return r.pass(arm) }

// SendDepth returns QueueConfig.SendDepth, the number of send slots.
func (q *Queue) SendDepth() int { return q.cfg.SendDepth }

// Policy returns the policy in effect, which may differ from Config.Policy.
func (r *Reactor) Policy() Policy { return r.policy }

// TickQueued reports whether a tick of the watchdog is queued. Only the holder may call it.
func (r *Reactor) TickQueued() bool { return r.watchdog.state == watchdogWaking }
