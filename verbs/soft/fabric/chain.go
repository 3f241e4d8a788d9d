package fabric

import "sync/atomic"

// Packets change hands in chains: those that a turn sends to one port, and those
// that it gives back to one pool, go over together when the turn ends, with one
// atomic step for all of them.

// chain is packets in order, linked by next. It has one owner.
type chain struct{ first, last *Packet }

// add appends k, which is in no chain.
func (c *chain) add(k *Packet) {
	if c.first == nil {
		c.first = k
	} else {
		c.last.next = k
	}
	c.last = k
}

// addFirst is add where the order does not matter.
func (c *chain) addFirst(k *Packet) {
	if c.first == nil {
		c.last = k
	}
	k.next = c.first
	c.first = k
}

// take empties c and gives what was in it.
func (c *chain) take() chain {
	t := *c
	*c = chain{}
	return t
}

// wordGap separates words of different writers: two lines, because the adjacent
// one is prefetched.
const wordGap = 128

// mailbox is a bounded queue of packets with many producers and one consumer,
// who takes everything there is, in the order of pushing. It is a stack of
// chains that is only ever emptied as a whole, so that it has no ABA problem
// (see internal/ring). The zero value is empty.
//
//	head -> chain 3 ─ below -> chain 2 ─ below -> chain 1
//
// A chain belongs to its pusher before push and to the consumer after takeAll.
//
// Chains that find others there are counted, and refused when these are too
// many. One that finds the mailbox empty is not: no word is shared beyond head
// while the consumer keeps up.
type mailbox struct {
	// taker has the shares of the links that lead here; nil: nobody counts.
	// Immutable.
	taker *Port
	_     [wordGap]byte
	// head is the first packet of the chain pushed last, or nil. Producers swap
	// theirs in, which publishes the chain's packets and links; the consumer swaps
	// nil in and acquires them.
	head atomic.Pointer[Packet]
	_    [wordGap]byte
	// held is the units of the chains that are counted. Raised by producers
	// before they push, lowered by the consumer. It publishes nothing.
	held atomic.Int64
	_    [wordGap]byte
}

// push appends c, which is not empty and has so many units; false when there is
// no room for it.
func (m *mailbox) push(c chain, units int64) bool {
	c.first.last = c.last
	for {
		h := m.head.Load()
		if h != nil && c.first.held == 0 && m.taker != nil {
			if m.held.Add(units) > inboxUnits {
				m.held.Add(-units)
				c.first.last = nil
				return false
			}
			c.first.held = units
		}
		c.first.below = h
		if m.head.CompareAndSwap(h, c.first) {
			return true
		}
	}
}

// pushOne appends a packet by itself.
func (m *mailbox) pushOne(k *Packet) bool { return m.push(chain{k, k}, k.weight()) }

// takeAll is the first of all packets, nil when there is none; the others follow
// by next. Consumer only.
func (m *mailbox) takeAll() *Packet {
	if m.head.Load() == nil { // a load is far cheaper than a swap
		return nil
	}
	var first *Packet
	var held int64
	for c := m.head.Swap(nil); c != nil; {
		below := c.below
		c.last.next = first
		c.below, c.last = nil, nil
		if c.held != 0 {
			held += c.held
			c.held = 0
		}
		if t := m.taker; t != nil {
			if r := c.route; !t.closed && r.untold+c.charge < tellUnits && r.waiter.Load() == nil {
				r.untold += c.charge
			} else {
				t.credit(r, c.charge)
			}
		}
		first, c = c, below
	}
	if held != 0 {
		m.held.Add(-held)
	}
	return first
}

func (m *mailbox) empty() bool { return m.head.Load() == nil }

// pile is packets in no particular order, of many who put and one who takes
// all. It has no ABA problem for the reason that mailbox has none.
type pile struct {
	_ [wordGap]byte
	// top is a packet from which the others follow by next. Swapped in by those
	// who put, which publishes the packets and links; swapped out by the taker.
	top atomic.Pointer[Packet]
	_   [wordGap]byte
}

// put adds c, which is not empty.
func (p *pile) put(c chain) {
	for {
		t := p.top.Load()
		c.last.next = t
		if p.top.CompareAndSwap(t, c.first) {
			return
		}
	}
}

// takeAll is one of the packets, nil when there is none; the others follow by
// next. Taker only.
func (p *pile) takeAll() *Packet {
	if p.top.Load() == nil {
		return nil
	}
	return p.top.Swap(nil)
}
