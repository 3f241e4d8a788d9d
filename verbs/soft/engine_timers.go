package soft

import "time"

// timer is an entry of the heap: q is to be examined at time at.
type timer struct {
	at time.Duration
	q  *queuePair
}

// timerHeap orders the deadlines of queue pairs. A queue pair has at most one entry, so that no
// peer can make the heap grow, and none after a reset. The heap is lazy: a deadline that moves
// later (as with every acknowledgement) leaves the entry in place, and the due entry is moved to
// the new time. So the heap changes about once per timeout and queue pair.
type timerHeap []timer

func (h timerHeap) earliest() time.Duration {
	if len(h) == 0 {
		return 0
	}
	return h[0].at
}

// set gives q an entry at t, in place of its old one.
func (h *timerHeap) set(q *queuePair, t time.Duration) {
	h.stop(q)
	q.timerAt = t
	*h = append(*h, timer{t, q})
	h.up(len(*h) - 1)
}

// stop removes the entry of q, if there is one.
func (h *timerHeap) stop(q *queuePair) {
	if q.timer == 0 {
		return
	}
	s := *h
	i, last := q.timer-1, len(s)-1
	q.timer, q.timerAt = 0, 0
	s[i], s[last] = s[last], timer{}
	*h = s[:last]
	if i < last {
		h.up(h.down(i))
	}
}

// up moves the entry at i toward the root to its place.
func (h timerHeap) up(i int) {
	e := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, e)
}

// down moves the entry at i toward the leaves to its place, and returns that.
func (h timerHeap) down(i int) int {
	e := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].at < h[c].at {
			c++
		}
		if e.at <= h[c].at {
			break
		}
		h.put(i, h[c])
		i = c
	}
	h.put(i, e)
	return i
}

func (h timerHeap) put(i int, e timer) {
	h[i] = e
	e.q.timer = i + 1
}

// setDeadline schedules onTimer for t, and not before; 0 cancels it.
func (q *queuePair) setDeadline(t time.Duration) {
	q.deadline = t
	if t != 0 && (q.timerAt == 0 || t < q.timerAt) {
		q.dev.timers.set(q, t)
	}
}

// fireTimers calls onTimer of every queue pair whose deadline has passed.
func (d *device) fireTimers() {
	for len(d.timers) > 0 && d.timers[0].at <= d.now {
		q := d.timers[0].q
		d.timers.stop(q)
		switch {
		case q.deadline == 0:
		case q.deadline > d.now:
			q.setDeadline(q.deadline)
		default:
			q.deadline = 0
			q.onTimer()
		}
	}
}
