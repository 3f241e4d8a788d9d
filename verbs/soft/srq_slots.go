package soft

import "sync/atomic"

// srqSlots are the slots of a shared receive queue. Its requests are taken in the order of
// posting and complete in any order, through any number of completion queues. So each slot is
// freed by itself.
//
//	       get: poster              take: engine           give: CQ poller
//	free ─────────────> posted ───────────────> taken ────────────────────> given
//	 ^                                                                        │
//	 └──────────────────── the poster, when it runs out ──────────────────────┘
//
// Given slots form a stack with many producers. Its only consumer, the poster, takes the whole
// stack, so there is no ABA problem and a plain compare-and-swap suffices (as in ring.Inbox).
type srqSlots struct {
	// order is the slot of each position of the queue. The poster writes it before head publishes
	// it; the engine reads it.
	order []uint32
	// link is, for a free or given slot, the next slot plus 1; 0 ends the list. The giver of a
	// slot writes it before given publishes it; from then on it belongs to the poster.
	link []uint32
	// given is the top of the stack, plus 1. Pollers and the engine push, the poster takes; it
	// publishes the links below.
	given atomic.Uint32

	// The poster's: slots to post to, and slots that it must not use yet, because that many slots
	// of prior are still outstanding (see sharedQueue.Resize).
	free, withheld chain
	prior          []*srqSlots
}

// chain is a list of slots through their links.
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

// pop takes a slot off a chain that is not empty.
func (p *srqSlots) pop(c *chain) uint32 {
	place := c.top - 1
	c.top = p.link[place]
	c.n--
	return place
}

// give frees a slot. Any goroutine may call it, once for each slot taken.
func (p *srqSlots) give(place uint32) {
	for {
		top := p.given.Load()
		p.link[place] = top
		if p.given.CompareAndSwap(top, place+1) {
			return
		}
	}
}

// collect moves given slots to free and returns their number. Poster only.
func (p *srqSlots) collect() (n uint32) {
	for top := p.given.Swap(0); top != 0; n++ {
		place := top - 1
		top = p.link[place]
		p.push(&p.free, place)
	}
	return n
}

// get returns a free slot; ok is false when there is none. Poster only.
func (p *srqSlots) get() (place uint32, ok bool) {
	if p.free.n == 0 && p.collect() == 0 && p.release() == 0 {
		return 0, false
	}
	return p.pop(&p.free), true
}

// release frees one withheld slot for each slot given back to an older ring. Poster only.
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
