package soft

import "time"

// timer is an entry of the heap: q wants to be looked at when at has come.
type timer struct {
	at time.Duration
	q  *queuePair
}

// timerHeap orders the deadlines of queue pairs. A queue pair has one entry at
// most, so that no peer makes the heap grow, and none when it is reset. The heap
// is lazy: a deadline that moves later (it does with every acknowledgement)
// leaves the entry where it is, and the entry, when due, is moved to the new
// time. So the heap is touched about once per timeout and queue pair.
type timerHeap []timer

func (h timerHeap) earliest() time.Duration {
	if len(h) == 0 {
		return 0
	}
	return h[0].at
}

// set gives q an entry at t, in place of the one it has.
func (h *timerHeap) set(q *queuePair, t time.Duration) {
	h.stop(q)
	q.timerAt = t
	*h = append(*h, timer{t, q})
	h.up(len(*h) - 1)
}

// stop takes the entry of q out; nothing happens when there is none.
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

// up moves the entry at i to its place among those before it.
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

// down moves the entry at i to its place among those behind it, and returns that.
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

// setDeadline has onTimer called at t, and not before; 0 is never.
func (q *queuePair) setDeadline(t time.Duration) {
	q.deadline = t
	if t != 0 && (q.timerAt == 0 || t < q.timerAt) {
		q.dev.timers.set(q, t)
	}
}

// fireTimers calls onTimer of every queue pair whose deadline has come.
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
