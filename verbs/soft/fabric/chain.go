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
// Chains that find others there are counted, by the mailbox and by their link (room.go),
// and refused when these are too many. One that finds the mailbox empty is not: while the
// consumer keeps up no word is shared beyond head, and counting costs next to nothing.
// So a bound is exceeded by one chain at most, which is what one turn sends by one link.
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

// pushed says what became of a chain.
type pushed uint8

const (
	pushedFree    pushed = iota // it found the mailbox empty, and counts nowhere
	pushedCounted               // it counts until it is taken
	pushedNot                   // there is no room for it
)

// push appends c, which is not empty, came by r and has so many units. With waits it is
// counted in any case: its sender waits to be told when it is taken.
func (m *mailbox) push(c chain, r *Route, units int64, waits bool) (p pushed) {
	c.first.last = c.last
	for {
		h := m.head.Load()
		if (h != nil || waits) && p == pushedFree && m.taker != nil {
			if m.held.Add(units) > inboxUnits {
				m.held.Add(-units)
				c.first.last = nil
				return pushedNot
			}
			c.first.held, c.first.charge, c.first.route = units, units, r
			p = pushedCounted
		}
		c.first.below = h
		if m.head.CompareAndSwap(h, c.first) {
			return p
		}
	}
}

// pushOne appends a packet by itself.
func (m *mailbox) pushOne(k *Packet) pushed { return m.push(chain{k, k}, k.route, k.weight(), false) }

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
		if c.charge != 0 {
			held += c.held
			m.taker.took(c.route, c.charge)
			c.held, c.charge, c.route = 0, 0, nil
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
