package soft

import (
	"fmt"
	"time"
)

// firstQP is the lowest number of a queue pair: 0 and 1 are the management queue pairs.
const firstQP = 2

// numberRest is how long the number of a queue pair is not drawn again after the queue pair's end: longer than any
// packet to it stays in a network.
const numberRest = 10 * time.Second

// qpNumbers finds queue pairs by number. A number is 24 random bits, as the index of a key is, so that a stranger cannot
// guess it from another: who knows neither the number nor an expected PSN does nothing to a connection.
//
// Numbers of queue pairs that ended rest in one of two sets. After numberRest the second is discarded, and the first
// takes its place. So a number rests for one to two periods.
type qpNumbers struct {
	qps          keyTable // of queue pairs, by qpKey
	ended, older map[uint32]struct{}
	since        time.Duration // when ended was made
}

// qpKey returns the key of a queue pair in a key table: its number is the index, the tag is 0.
func qpKey(number uint32) uint32 { return number << keyTagBits }

// find returns the queue pair with a number of 24 bits, nil when there is none.
func (n *qpNumbers) find(number uint32) *queuePair {
	if size := uint32(len(n.qps.slots)); size > 0 { // nearly always it is in its first place
		if s := &n.qps.slots[number&(size-1)]; s.key == qpKey(number) {
			return s.qp
		}
	}
	if s := n.qps.find(number); s != nil {
		return s.qp
	}
	return nil
}

// eachQP calls fn with every queue pair, in an order that a seed repeats. fn may neither add nor remove one.
func (n *qpNumbers) eachQP(fn func(*queuePair)) {
	for i := range n.qps.slots {
		if q := n.qps.slots[i].qp; q != nil {
			fn(q)
		}
	}
}

// turn discards the numbers that have rested.
func (n *qpNumbers) turn(now time.Duration) {
	switch d := now - n.since; {
	case d >= 2*numberRest:
		n.older, n.ended, n.since = nil, nil, now
	case d >= numberRest:
		n.older, n.ended, n.since = n.ended, nil, now
	}
}

// rest keeps the number of a queue pair that ends.
func (n *qpNumbers) rest(number uint32, now time.Duration) {
	n.turn(now)
	if n.ended == nil {
		n.ended = map[uint32]struct{}{}
	}
	n.ended[number] = struct{}{}
}

// free reports whether a number may be drawn: it is none of the numbers with a meaning of their own (the management
// queue pairs, the multicast number), not in use, and does not rest.
func (n *qpNumbers) free(number uint32) bool {
	_, ended := n.ended[number]
	_, older := n.older[number]
	return number >= firstQP && number < max24 && !ended && !older && n.find(number) == nil
}

// addQP draws the number of a queue pair. The caller holds the token.
func (d *device) addQP(q *queuePair) error {
	if d.qps.n >= d.cfg.Limits.MaxQP {
		return fmt.Errorf("all %d queue pairs are in use", d.cfg.Limits.MaxQP)
	}
	d.turn(d.provider.fab.Now())
	for {
		number, err := d.draw(24)
		if err != nil {
			return fmt.Errorf("no randomness for a queue pair number: %w", err)
		}
		if d.free(number) {
			q.number = number
			d.qps.put(keySlot{key: qpKey(number), qp: q})
			return nil
		}
	}
}

// removeQP removes a queue pair, which is reset, from the device.
func (d *device) removeQP(q *queuePair) {
	q.closed.Store(true)
	d.detachAll(q)
	d.qps.remove(q.number)
	d.rest(q.number, d.provider.fab.Now())
}
