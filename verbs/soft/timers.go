package soft

import "time"

// timer is an entry of the heap: q wants to be looked at when at has come.
type timer struct {
	at time.Duration
	q  *queuePair
}

// timerHeap orders the deadlines of queue pairs. It is lazy: a deadline that
// moves later (it does with every acknowledgement) leaves its entry where it
// is, and the entry, when due, is put in again at the new time. So the heap is
// touched about once per timeout and queue pair.
type timerHeap []timer

func (h timerHeap) earliest() time.Duration {
	if len(h) == 0 {
		return 0
	}
	return h[0].at
}

func (h *timerHeap) push(t timer) {
	*h = append(*h, t)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			break
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *timerHeap) pop() timer {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s[last] = timer{}
	s = s[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && s[c+1].at < s[c].at {
			c++
		}
		if s[i].at <= s[c].at {
			break
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
	*h = s
	return top
}

// setDeadline has onTimer called at t, and not before; 0 is never.
func (q *queuePair) setDeadline(t time.Duration) {
	q.deadline = t
	if t != 0 && (q.timerAt == 0 || t < q.timerAt) {
		q.timerAt = t
		q.dev.timers.push(timer{t, q})
	}
}

// fireTimers calls onTimer of every queue pair whose deadline has come.
func (d *device) fireTimers() {
	for len(d.timers) > 0 && d.timers[0].at <= d.now {
		t := d.timers.pop()
		q := t.q
		if t.at != q.timerAt {
			continue // an earlier one was put in since
		}
		q.timerAt = 0
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
