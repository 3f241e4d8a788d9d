package fabric

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// The memory of packets that wait for an endpoint is bounded, for every sender and even if the
// endpoint takes none. It is counted in units: a packet is one, and one more for each unitBytes of
// copied payload, so that a unit is at most some 1.5 KiB: a packet itself takes 384 bytes.
//
// Each link has a share of its receiver's inbox and of what its sender may have in flight. A sender
// that can wait asks Room and stops at half of the share; the other half is for packets that cannot
// wait (management datagrams, multicast). Packets that do not fit in the share, or in the inbox as
// a whole, are dropped and counted (Stats.Overflow), like in a switch with full buffers. So a
// source that floods takes nothing from others.
const (
	// inboxUnits is the capacity of an inbox: some 48 MiB, 12 MiB when nothing is copied. The
	// packets that the endpoint has taken out but not handled yet are at most as many again.
	inboxUnits = 1 << 15
	// unitBytes is the copied payload that counts as a unit.
	unitBytes = 1 << 10
	// fullShares is how many links get a whole share, inboxUnits / fullShares units: the windows of
	// several queue pairs. More links get less each, but never less than minShare.
	fullShares = 16
	minShare   = 32
	// tellUnits is how much a receiver takes before it tells the sender, so that the two share no
	// word while each answers the other. It is less than half of the smallest share: a sender that
	// waits has more than that in flight, and is told when it is taken.
	tellUnits = 8
	// lookEvery is how many units a sender sends before it updates its view of its share.
	lookEvery = 64
)

// ample is the room of a link without a receiver: its packets are dropped.
const ample = inboxUnits

// weight returns the units of k.
func (p *Packet) weight() int64 { return 1 + int64(len(p.own)/unitBytes) }

// shareOf returns the share of one of n links.
func shareOf(n int) int64 { return int64(max(minShare, inboxUnits/max(n, fullShares))) }

// flow counts the used part of a link's share.
//
//	             sender: admit               receiver: took
//	free ──────────────────────────> in flight ───────────────> untold ───┐
//	 ^                                   │ dropped in flight              │ told
//	 └───────────────────────────────────┴────────────────────────────────┘
type flow struct {
	// Owned by the sender, in its run. admitted is the units ever admitted. The next two are limits
	// of admitted as of the last look: until for sending, roomLimit for Room.
	admitted  int64
	until     int64
	roomLimit int64
	handed    int64 // of admitted, the units not in out: handed over, or delayed
	asked     bool  // Room found none since the last chain was handed over
	_         [wordGap]byte

	// left is the units that have left the link. Added to by the receiver, and by the goroutine
	// that drops a delayed packet; read by the sender. It publishes nothing.
	left atomic.Int64
	// waiter is the sender's port when it waits for room. The sender sets it and then reads left; a
	// goroutine that adds to left takes it after that: one of them sees the other.
	waiter atomic.Pointer[Port]
	// unreported is the units taken that left does not count yet. Owned by the receiver, in its run.
	unreported int64
}

// take takes w units known to be free; false if there are none. In the sender's run.
func (f *flow) take(w int64) bool {
	if f.admitted >= f.until {
		return false
	}
	f.admitted += w
	return true
}

// admit takes w units of the share of the link r to the port to (nil: none yet); false when all are
// in use. The last packet may be larger than the free rest. Runner only.
func (p *Port) admit(r *Route, to *Port, w int64) bool {
	if r.take(w) {
		return true
	}
	p.look(r, to)
	return r.take(w)
}

// look updates the sender's limits of the link r to the port to.
func (p *Port) look(r *Route, to *Port) {
	share := p.outShare
	if to != nil {
		share = min(share, to.share.Load())
	}
	gone := r.left.Load()
	r.until = min(gone+share, r.admitted+lookEvery)
	r.roomLimit = gone + share/2
}

// release frees n units. It returns the port that waits for them, if one does; the caller has it
// run.
func (r *Route) release(n int64) (waiter *Port) {
	r.left.Add(n)
	if r.waiter.Load() == nil {
		return nil
	}
	return r.waiter.Swap(nil)
}

// took frees n units that a chain in the inbox had of its link, and those not told before, and has
// the sender run if it waits for them. It keeps a few untold. Runner only.
func (p *Port) took(r *Route, n int64) {
	if !p.closed { // else another port may be at this address, with its own untold
		n += r.unreported
		if r.unreported = 0; n < tellUnits && r.waiter.Load() == nil {
			r.unreported = n
			return
		}
	}
	if w := r.release(n); w != nil {
		p.touched = append(p.touched, touch{nil, w})
	}
}

// Room returns how many packets without copied payload the port should send by r now. When it is 0
// the endpoint runs again when there is room. Senders that cannot wait need not ask: their packets
// are dropped when there is none. Runner only.
func (p *Port) Room(r *Route) int {
	if room := r.roomLimit - r.admitted; room > 0 {
		return int(room)
	}
	return p.findRoom(r)
}

// findRoom is Room when roomLimit is reached.
func (p *Port) findRoom(r *Route) int {
	to := r.to.Load()
	if to == nil || p.closed || p.down {
		return ample
	}
	for range 2 {
		if p.look(r, to); r.roomLimit > r.admitted {
			return int(r.roomLimit - r.admitted)
		}
		r.waiter.Store(p) // and look again
	}
	r.asked = true
	return 0
}

// linkedLocked adds by to the number of links that end where r does, and divides the inbox anew. An
// uplink has one. f.mu is held.
func (f *Fabric) linkedLocked(r *Route, by int) {
	if r.far != nil {
		return
	}
	dst := r.path.Peer
	if f.links[dst] += by; f.links[dst] == 0 {
		delete(f.links, dst)
	}
	f.shareLocked(dst)
}

// shareLocked divides the inbox at dst among its links. f.mu is held.
func (f *Fabric) shareLocked(dst verbs.GID) {
	if to := f.attached[dst]; to != nil {
		to.share.Store(shareOf(f.links[dst]))
	}
}
