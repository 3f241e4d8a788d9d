package fabric

import "sync/atomic"

// Packets change owners in chains: the packets that a run sends to one port, and those that it
// returns to one pool, are handed over together at the end of the run, with one atomic operation.

// chain is a list of packets in order, linked by next. It has one owner.
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

// addFirst is a cheaper add for uses where the order does not matter.
func (c *chain) addFirst(k *Packet) {
	if c.first == nil {
		c.last = k
	}
	k.next = c.first
	c.first = k
}

// take empties c and returns its packets.
func (c *chain) take() chain {
	t := *c
	*c = chain{}
	return t
}

// wordGap separates words of different writers: two cache lines, because the adjacent one is
// prefetched.
const wordGap = 128

// mailbox is a bounded queue of packets with many producers and one consumer, which takes all of
// them in the order of pushing. It is a stack of chains that is only ever emptied as a whole, so
// that it has no ABA problem (see internal/ring). The zero value is empty.
//
//	head -> chain 3 ─ below -> chain 2 ─ below -> chain 1
//
// A chain belongs to its producer before push and to the consumer after takeAll.
//
// A chain that finds others in the mailbox is counted, by the mailbox and by its link (room.go),
// and refused beyond the bound. A chain that finds the mailbox empty is not counted: while the
// consumer keeps up no word is shared beyond head, and counting costs next to nothing. So a bound
// is exceeded by one chain at most, the packets that one run sends by one link.
type mailbox struct {
	// taker has the shares of the links to this mailbox; nil: no counting. Immutable.
	taker *Port
	_     [wordGap]byte
	// head is the first packet of the chain pushed last, or nil. Producers swap theirs in, which
	// publishes the chain's packets and links; the consumer swaps nil in and acquires them.
	head atomic.Pointer[Packet]
	_    [wordGap]byte
	// held is the units of the counted chains. Producers raise it before they push, the consumer
	// lowers it. It publishes nothing.
	held atomic.Int64
	_    [wordGap]byte
}

// pushed is the result of a push.
type pushed uint8

const (
	pushedFree    pushed = iota // it found the mailbox empty and is not counted
	pushedCounted               // it is counted until it is taken
	pushedNot                   // there is no room for it
)

// push appends c, which is not empty, came by r and weighs units. With waits it is always counted:
// its sender waits for its being taken.
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

// pushOne appends a single packet.
func (m *mailbox) pushOne(k *Packet) pushed { return m.push(chain{k, k}, k.route, k.weight(), false) }

// takeAll returns the first of all packets, nil if there are none; the others follow by next.
// Consumer only.
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

// returnStack is an unordered collection of packets with many producers and one consumer, which takes all.
// It has no ABA problem for the same reason as mailbox.
type returnStack struct {
	_ [wordGap]byte
	// top is a packet from which the others follow by next. Producers swap theirs in, which
	// publishes the packets and links; the consumer swaps nil in.
	top atomic.Pointer[Packet]
	_   [wordGap]byte
}

// put adds c, which is not empty.
func (p *returnStack) put(c chain) {
	for {
		t := p.top.Load()
		c.last.next = t
		if p.top.CompareAndSwap(t, c.first) {
			return
		}
	}
}

// takeAll returns one of the packets, nil if there are none; the others follow by next. Consumer
// only.
func (p *returnStack) takeAll() *Packet {
	if p.top.Load() == nil {
		return nil
	}
	return p.top.Swap(nil)
}
