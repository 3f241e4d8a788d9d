package soft

import "sync/atomic"

// srqSlots are the places of a shared receive queue. Its requests are taken in
// the order of posting and complete in any order, by way of any number of
// completion queues; so each place is freed by itself.
//
//	       get: poster              take: engine           give: who polls it out
//	free ─────────────> posted ───────────────> taken ────────────────────> given
//	 ^                                                                        │
//	 └──────────────────── the poster, when it runs out ──────────────────────┘
//
// Given places are a stack of many producers that its consumer, the poster,
// takes as a whole: no place can come back between a look and a swap, so a
// plain compare-and-swap will do (as ring.Inbox).
type srqSlots struct {
	// order is which place stands at a position of the queue. Written by the
	// poster before head publishes it, read by the engine.
	order []uint32
	// link is, for a place that is free or given, the next one plus 1; 0 ends.
	// Written by whoever gives the place before given publishes it; the
	// poster's from then on.
	link []uint32
	// given is the top of the stack, plus 1. Pushed by pollers and the engine,
	// taken by the poster; it publishes the links below.
	given atomic.Uint32

	// The poster's: places to post to, and those that it must not use yet,
	// because that many of prior's are still out (see sharedQueue.Resize).
	free, withheld chain
	prior          []*srqSlots
}

// chain is a list of places through their links.
type chain struct {
	top uint32 // plus 1
	n   uint32
}

func (p *srqSlots) init(n uint64) {
	p.order = make([]uint32, n)
	p.link = make([]uint32, n)
}

func (p *srqSlots) push(c *chain, place uint32) {
	p.link[place] = c.top
	c.top = place + 1
	c.n++
}

// pop takes a place off a chain that is not empty.
func (p *srqSlots) pop(c *chain) uint32 {
	place := c.top - 1
	c.top = p.link[place]
	c.n--
	return place
}

// give gives a place back. Any goroutine, once for each place taken.
func (p *srqSlots) give(place uint32) {
	for {
		top := p.given.Load()
		p.link[place] = top
		if p.given.CompareAndSwap(top, place+1) {
			return
		}
	}
}

// collect moves what was given to the free ones and tells how many there were.
// Poster only.
func (p *srqSlots) collect() (n uint32) {
	for top := p.given.Swap(0); top != 0; n++ {
		place := top - 1
		top = p.link[place]
		p.push(&p.free, place)
	}
	return n
}

// get is a free place; ok is false when there is none. Poster only.
func (p *srqSlots) get() (place uint32, ok bool) {
	if p.free.n == 0 && p.collect() == 0 && p.release() == 0 {
		return 0, false
	}
	return p.pop(&p.free), true
}

// release frees one withheld place for each that came back to an older
// generation. Poster only.
func (p *srqSlots) release() (n uint32) {
	if p.withheld.n == 0 {
		return 0
	}
	for _, old := range p.prior {
		for back := old.collect(); back > 0 && p.withheld.n > 0; back-- {
			p.push(&p.free, p.pop(&p.withheld))
			n++
		}
	}
	if p.withheld.n == 0 {
		p.prior = nil
	}
	return n
}
