package fabric

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// What waits for an endpoint is bounded, whoever sends and whether or not the
// endpoint takes it. Memory is counted in units: a packet is one, and one more
// for each unitBytes of payload that it has copied, so that a unit is at most
// some 1.5 KiB: a packet itself takes 384 bytes.
//
// Each link has a share of what its receiver's inbox holds and of what its
// sender may have on the way. A sender that can wait asks Room and stops at half
// of the share; the other half is for what cannot wait (management datagrams,
// multicast). What does not fit in the share, or in the inbox as a whole, is
// dropped and counted (Stats.Overflow), as a switch drops what its buffers do not
// hold. So a source that floods takes nothing from others.
const (
	// inboxUnits is what an inbox holds: some 48 MiB, 12 MiB when nothing is
	// copied. What the endpoint has taken out at once and not yet looked at is no
	// more than that again.
	inboxUnits = 1 << 15
	// unitBytes is how much copied payload makes a unit.
	unitBytes = 1 << 10
	// fullShares is how many links have a whole share, inboxUnits / fullShares
	// units: several queue pairs' windows. More links have less each, but never
	// less than minShare.
	fullShares = 16
	minShare   = 32
	// tellUnits is how much a receiver has taken before it tells the sender, so
	// that the two share no word while each answers the other. It is less than
	// half of the least share: a sender that waits has more than that on the way,
	// and is told when it is taken.
	tellUnits = 8
	// lookEvery is how many units a sender sends before it looks again what has
	// become of its share.
	lookEvery = 64
)

// ample is the room where nothing is kept: what is sent there is dropped.
const ample = inboxUnits

// weight is the units of k.
func (p *Packet) weight() int64 { return 1 + int64(len(p.own)/unitBytes) }

// shareOf is the share of one of n links.
func shareOf(n int) int64 { return int64(max(minShare, inboxUnits/max(n, fullShares))) }

// flow is how much of a link's share is in use.
//
//	             sender: admit                receiver: took
//	free ──────────────────────────> on the way ───────────────> untold ──┐
//	 ^                                   │ dropped on the way             │ told
//	 └───────────────────────────────────┴────────────────────────────────┘
type flow struct {
	// The sender's, in its turn. admitted is the units ever admitted. The next two
	// are how far it may grow, as of the last look: without another one, and
	// while Room has room.
	admitted int64
	until    int64
	easyTo   int64
	handed   int64 // of admitted, what is not in out: handed over, or delayed
	asked    bool  // Room was asked in vain since the last chain was handed over
	_        [wordGap]byte

	// left is the units that have left the link. Added to by the receiver, and by
	// whoever drops a packet that was delayed; read by the sender. It publishes
	// nothing.
	left atomic.Int64
	// waiter is the sender's port when it waits for room. Set by the sender,
	// which reads left afterwards; taken by whoever adds to left, after that: one
	// of them sees the other.
	waiter atomic.Pointer[Port]
	// untold is the units taken that left does not count yet. The receiver's, in
	// its turn.
	untold int64
}

// take takes w units of what is known to be free; false when that is nothing. In
// the sender's turn.
func (f *flow) take(w int64) bool {
	if f.admitted >= f.until {
		return false
	}
	f.admitted += w
	return true
}

// admit takes w units of the share of the link r, which leads to to (nil: to
// nobody yet); false when it is in use. The last packet may be larger than what
// was free. In its turn.
func (p *Port) admit(r *Route, to *Port, w int64) bool {
	if r.take(w) {
		return true
	}
	p.look(r, to)
	return r.take(w)
}

// look refreshes what the sender knows of the link r, which leads to to.
func (p *Port) look(r *Route, to *Port) {
	share := p.outShare
	if to != nil {
		share = min(share, to.share.Load())
	}
	gone := r.left.Load()
	r.until = min(gone+share, r.admitted+lookEvery)
	r.easyTo = gone + share/2
}

// release gives n units back. It returns the port that waits for them, if one
// does, which the caller has turned.
func (r *Route) release(n int64) (waiter *Port) {
	r.left.Add(n)
	if r.waiter.Load() == nil {
		return nil
	}
	return r.waiter.Swap(nil)
}

// took gives back n units that a chain in the inbox had of its link, and those that the
// sender was not told of, and has the sender turned if it waits for them. A few it keeps
// untold. In its turn.
func (p *Port) took(r *Route, n int64) {
	if !p.closed { // else another port may be at this address, and untold its own
		n += r.untold
		if r.untold = 0; n < tellUnits && r.waiter.Load() == nil {
			r.untold = n
			return
		}
	}
	if w := r.release(n); w != nil {
		p.touched = append(p.touched, touch{nil, w})
	}
}

// Room is how many packets without copied payload the port should send by r
// now. When it is 0 the endpoint is turned again when there is room. Senders that
// cannot wait need not ask: their packets are dropped when there is none. In
// its turn only.
func (p *Port) Room(r *Route) int {
	if room := r.easyTo - r.admitted; room > 0 {
		return int(room)
	}
	return p.findRoom(r)
}

// findRoom is Room when none is known.
func (p *Port) findRoom(r *Route) int {
	to := r.to.Load()
	if to == nil || p.closed || p.down {
		return ample
	}
	for range 2 {
		if p.look(r, to); r.easyTo > r.admitted {
			return int(r.easyTo - r.admitted)
		}
		r.waiter.Store(p) // and look again
	}
	r.asked = true
	return 0
}

// linkedLocked counts a link to dst more or less and divides the inbox anew.
// f.mu is held.
func (f *Fabric) linkedLocked(dst verbs.GID, by int) {
	n := f.links[dst] + by
	if f.links[dst] = n; n == 0 {
		delete(f.links, dst)
	}
	if to := f.attached[dst]; to != nil {
		to.share.Store(shareOf(n))
	}
}
