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
	return func() { q.sendFree.Put(i) }
}

// ControlUnderWay is a submitter in PostControl.
func (q *Queue) ControlUnderWay() (back func()) {
	i, ok := q.ctrlFree.Get()
	if !ok {
		panic("no control slot")
	}
	return func() { q.ctrlFree.Put(i) }
}

// RecvUnderWay is a submitter in PostRecv.
func (q *Queue) RecvUnderWay() (back func()) {
	i, ok := q.recvFree.Get()
	if !ok {
		panic("no receive slot")
	}
	return func() { q.recvFree.Put(i) }
}

// ForgetAnswers makes the result words be as before the device wrote the answers of
// atomics. Holder only.
func (q *Queue) ForgetAnswers() {
	for i := range q.tab.results {
		q.tab.results[i] = unanswered
	}
}

// EventRest is how long a source that fails is let be.
const EventRest = eventRest

// Snapshot is Stats for the holder.
func (r *Reactor) Snapshot() Stats { return r.snapshot() }

// Note counts v.
func (h *Histogram) Note(v int) { h.note(v) }
