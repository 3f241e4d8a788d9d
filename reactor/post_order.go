package reactor

import (
	"iter"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// order is the list of a queue's outstanding sends in posting order. The links of the slots lead from each
// send to the next. Only the holder uses an order.
type order struct {
	links       ring.Links
	first, last uint32 // the oldest and the newest send; undefined if there is none
	n           int
	ended       uint32 // how many sends were popped; wraps
}

// push appends a list of n slots, which the links lead through.
func (o *order) push(first, last uint32, n int) {
	if o.n == 0 {
		o.first = first
	} else {
		o.links.Join(o.last, first)
	}
	o.last = last
	o.n += n
}

// pop removes the oldest send. There must be one.
func (o *order) pop() uint32 {
	i := o.first
	o.first = o.links.Next(i)
	o.n--
	o.ended++
	return i
}

// cut removes the newest n sends, and returns them, the oldest first. It walks through all sends.
func (o *order) cut(n int) []uint32 {
	bad := make([]uint32, 0, n)
	k, keep := 0, o.n-n
	for i := range o.all() {
		if k++; k <= keep {
			o.last = i
		} else {
			bad = append(bad, i)
		}
	}
	o.n = keep
	return bad
}

// all returns the sends, the oldest first. The loop may not change the order.
func (o *order) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		i := o.first
		for range o.n {
			if !yield(i) {
				return
			}
			i = o.links.Next(i)
		}
	}
}
