package cm

import "time"

// timerHeap is a binary heap of connections by deadline, then by the order in which the deadlines
// were set, so that equal ones expire in a fixed order.
type timerHeap struct {
	h   []*Conn
	seq uint64
}

func (t *timerHeap) next() time.Duration {
	if len(t.h) == 0 {
		return 0
	}
	return t.h[0].deadline
}

// due removes and returns the first connection whose deadline is reached; nil if there is none.
func (t *timerHeap) due(now time.Duration) *Conn {
	if len(t.h) == 0 || t.h[0].deadline > now {
		return nil
	}
	c := t.h[0]
	t.stop(c)
	return c
}

// set replaces the deadline of c.
func (t *timerHeap) set(c *Conn, deadline time.Duration) {
	t.stop(c)
	t.seq++
	c.deadline, c.timerSeq = deadline, t.seq
	t.h = append(t.h, c)
	c.timer = len(t.h)
	t.up(len(t.h) - 1)
}

// stop removes c; without a deadline it does nothing.
func (t *timerHeap) stop(c *Conn) {
	if c.timer == 0 {
		return
	}
	i, last := c.timer-1, len(t.h)-1
	t.swap(i, last)
	t.h[last] = nil
	t.h = t.h[:last]
	c.timer = 0
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t *timerHeap) less(i, j int) bool {
	a, b := t.h[i], t.h[j]
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	return a.timerSeq < b.timerSeq
}

func (t *timerHeap) swap(i, j int) {
	t.h[i], t.h[j] = t.h[j], t.h[i]
	t.h[i].timer, t.h[j].timer = i+1, j+1
}

func (t *timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.less(i, parent) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timerHeap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(t.h); c++ {
			if t.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
