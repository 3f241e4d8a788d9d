package reactor

// A turn posts for every queue that has something, and nobody else gets anything until
// it is over: so it must not be long, whatever one of them has. A queue's part of a turn
// is a list of at most turnRequests requests that moves no more than turnBytes, but for
// the last request of it. What is left is the first to go in the next turn.
//
//	submitted ──gather──> [first ... | held ...]
//	                       posted      next turn, before what is submitted by then
//
// The device shares its wire among queue pairs as it likes. The software RNIC moves the
// bytes while the list is posted, and there the bound is one of time.
const (
	// turnRequests is twice what is needed to have a doorbell's cost vanish among the
	// requests' own. Where each is carried out at once, as by the software RNIC in 0.12 µs
	// of both ends, it takes some 30 µs.
	turnRequests = 256
	// turnBytes takes no longer: 16 µs at the 65 GB/s of the software RNIC.
	turnBytes = 1 << 20
)

// heldSends are submitted sends that were taken off the stack and did not fit a turn.
// The holder's.
type heldSends struct {
	first uint32
	n     int
}

// takeSends takes what is to be posted next: what was held back, else what was
// submitted since. What follows each is its Next of the submission stack.
func (q *Queue) takeSends() (first uint32, n int) {
	if q.held.n > 0 {
		return q.takeHeld()
	}
	if q.direct.n > 0 {
		return q.takeDirect()
	}
	return q.sendStack.TakeAll()
}

// takeDirect takes what sinks started, and behind it what was submitted.
func (q *Queue) takeDirect() (first uint32, n int) {
	d := q.direct
	q.direct.n = 0
	if first, n = q.sendStack.TakeAll(); n > 0 {
		q.sendStack.Join(d.last, first)
	}
	return d.first, d.n + n
}

// takeHeld is apart so that takeSends is inlined.
func (q *Queue) takeHeld() (first uint32, n int) {
	h := q.held
	q.held = heldSends{}
	if q.direct.n > 0 || !q.sendStack.Empty() { // they found the queue on the ready list, which it has left
		q.ready()
	}
	return h.first, h.n
}

// hold keeps n sends for the next turn, which the queue is put on the ready list for.
// Whoever holds looks there before it leaves.
func (q *Queue) hold(first uint32, n int) {
	q.held = heldSends{first, n}
	q.r.stats.Held += uint64(n)
	q.ready()
}

// noSends tells whether no send waits to be posted.
func (q *Queue) noSends() bool {
	return q.sendStack == nil || q.held.n+q.direct.n == 0 && q.sendStack.Empty()
}
