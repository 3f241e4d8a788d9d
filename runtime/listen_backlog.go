package runtime

import (
	"net/netip"
	"slices"
	"time"
)

// Limits of a listener's handshakes. Each that has begun has a queue pair and its
// receives: half a MiB and some 400 µs of processor by default. A request that waits has
// neither. So what a peer that asks and then says nothing can make the listener spend is
// bounded by these.
const (
	// handshakesPart is which part of the backlog may be handshakes that have begun: the
	// rest of it then waits, or is established.
	handshakesPart = 2
	// handshakesEachPart is which part of those may be of one address, so that the others
	// find room.
	handshakesEachPart = 4
	// handshakePatience is how long a handshake is left alone before it gives way to one
	// that waits for its place. A peer that is there answers within a round trip; the rest
	// is for a machine that is busy. So at most 64 handshakes a second begin in vain by
	// default, and 16 for one address, as long as requests find room to wait: in a backlog
	// full of established connections each newcomer puts out one that has begun.
	handshakePatience = time.Second
	// makingMost is how many connections are being prepared at once. Each takes part of a
	// turn when it is accepted, so it is also how many of these one turn sees.
	makingMost = 2
)

// stage is where a request stands in its listener's backlog.
//
//	        admit            next             establish           take
//	(none) ───────> waiting ───────> begun ───────────────> ready ──────> (none)
//	                   │               │ gives way, by           │ ended, and
//	                   │ gives way,    │ admit or next           │ nothing to read
//	                   │ remove        v          leave          │
//	                   │            leaving <────────────────────┘
//	                   v               │ remove
//	                 (none) <──────────┘
//
// remove ends any of them. A request that is leaving counts as a handshake of its address
// until its connection is gone, so that memory is bounded too, but not in the backlog.
type stage uint8

const (
	stageNone stage = iota
	stageWaiting
	stageBegun
	stageReady
	stageLeaving
)

// backlog says which requests a listener keeps, which handshakes begin, and which give
// way. It has no I/O and no clock. The holder's.
//
//   - There are at most `most` requests that wait, have begun or are ready.
//   - At most `begunMost` handshakes have begun, and `begunEach` of one address.
//   - A newcomer that finds no room takes the place of an unfinished request of the
//     address that has most unfinished ones, its own included: one that waits before one
//     that has begun, the oldest first. If all are ready the newcomer is refused.
//   - Who waits begins in the order of coming, but an address with fewer handshakes goes
//     first. Where the handshakes are used up, the oldest that has had its patience gives
//     way, of the address that has most of them.
type backlog struct {
	most, begunMost, begunEach int

	unfinished []*entry // waiting and begun, in the order of coming
	ready      []*entry // established, in that order
	peers      map[netip.Addr]*peerShare
	begun      int // requests that have begun or are leaving: those with a connection
	leaving    int
	making     int // of those that have begun: their connections are being prepared
}

// entry is a request's in a backlog.
type entry struct {
	stage  stage
	making bool // its connection is being prepared
	peer   *peerShare
	since  time.Time // of a handshake that was made: since when its peer can answer
	req    *request  // whose it is; the backlog does not look at it
}

// peerShare is what the requests of an address are. It is in backlog.peers while entries
// refer to it.
type peerShare struct {
	addr       netip.Addr
	entries    int
	unfinished int // waiting and begun
	begun      int // begun and leaving
	leaving    int
}

func newBacklog(most int) backlog {
	begun := max(1, most/handshakesPart)
	return backlog{most: most, begunMost: begun, begunEach: max(1, begun/handshakesEachPart), peers: map[netip.Addr]*peerShare{}}
}

// len is how many requests count against the backlog.
func (b *backlog) len() int { return len(b.unfinished) + len(b.ready) }

// admit adds a request of addr. Without room for it, it removes another, which the caller
// ends, or refuses the request (false).
func (b *backlog) admit(e *entry, addr netip.Addr) (out *entry, ok bool) {
	e.peer = b.share(addr)
	e.peer.unfinished++
	if b.len() >= b.most {
		if out = b.crowding(); out == nil {
			e.peer.unfinished--
			b.unshare(e)
			return nil, false
		}
		if out.stage == stageBegun {
			b.leave(out)
		} else {
			b.remove(out)
		}
	}
	e.stage = stageWaiting
	b.unfinished = append(b.unfinished, e)
	return out, true
}

// crowding is the request that gives way to a newcomer, who is counted already; nil if
// none does.
func (b *backlog) crowding() (worst *entry) {
	for _, e := range b.unfinished { // oldest first
		switch {
		case worst == nil, e.peer.unfinished > worst.peer.unfinished:
			worst = e
		case e.peer.unfinished == worst.peer.unfinished && e.stage < worst.stage: // waiting before begun
			worst = e
		}
	}
	return worst
}

// next is the request whose handshake is to begin now, or the one that gives way to
// it and is to be ended, or when to ask again; if all are zero nothing can begin until
// something changes. room is how many may begin beside those that have, as the caller
// has it; if it is 0, one may begin in place of another.
func (b *backlog) next(now time.Time, room int) (begin, out *entry, wake time.Time) {
	if b.making == makingMost || room < 0 {
		return nil, nil, wake
	}
	for _, e := range b.unfinished {
		if e.stage == stageWaiting && (begin == nil || e.peer.begun < begin.peer.begun) {
			begin = e
		}
	}
	if begin == nil {
		return nil, nil, wake
	}
	var of *peerShare // whose handshakes stand in the way
	leaving := b.leaving
	switch {
	case begin.peer.begun >= b.begunEach:
		of = begin.peer
		leaving = of.leaving
	case room > 0 && b.begun < b.begunMost:
		begin.stage, begin.making = stageBegun, true
		begin.peer.begun++
		b.begun++
		b.making++
		return begin, nil, wake
	}
	if leaving > 0 { // a place is about to be free
		return nil, nil, wake
	}
	for _, e := range b.unfinished {
		if e.stage != stageBegun || e.making || of != nil && e.peer != of {
			continue
		}
		due := e.since.Add(handshakePatience)
		switch {
		case due.After(now):
			if wake.IsZero() || due.Before(wake) {
				wake = due
			}
		case out == nil || e.peer.begun > out.peer.begun || e.peer.begun == out.peer.begun && e.since.Before(out.since):
			out = e
		}
	}
	if out == nil {
		return nil, nil, wake
	}
	b.leave(out)
	return nil, out, time.Time{}
}

// made notes that the connection of a request was prepared, whatever became of it, and
// that its peer can answer from now on.
func (b *backlog) made(e *entry, now time.Time) {
	if e.making {
		e.making, e.since = false, now
		b.making--
	}
}

// establish makes a handshake ready. It reports whether that has not given way.
func (b *backlog) establish(e *entry) bool {
	if e.stage != stageBegun {
		return false
	}
	b.finish(e)
	e.peer.begun--
	b.begun--
	e.stage = stageReady
	b.ready = append(b.ready, e)
	return true
}

// putBack has a request that was taken be ready again, before all others.
func (b *backlog) putBack(e *entry) {
	e.stage, e.peer = stageReady, b.share(e.peer.addr)
	b.ready = slices.Insert(b.ready, 0, e)
}

// leave takes a handshake or a ready request out of the backlog, whose connection is yet
// to go: then comes remove.
func (b *backlog) leave(e *entry) {
	switch e.stage {
	case stageBegun:
		b.finish(e)
	case stageReady:
		b.unready(e)
		e.peer.begun++
		b.begun++
	default:
		return
	}
	e.stage = stageLeaving
	e.peer.leaving++
	b.leaving++
}

// remove forgets a request, wherever it stands.
func (b *backlog) remove(e *entry) {
	switch e.stage {
	case stageNone:
		return
	case stageWaiting:
		b.finish(e)
	case stageBegun:
		b.finish(e)
		e.peer.begun--
		b.begun--
	case stageReady:
		b.unready(e)
	case stageLeaving:
		e.peer.begun--
		e.peer.leaving--
		b.begun--
		b.leaving--
	}
	e.stage = stageNone
	b.unshare(e)
}

// finish takes a request from the unfinished.
func (b *backlog) finish(e *entry) {
	i := slices.Index(b.unfinished, e)
	b.unfinished = slices.Delete(b.unfinished, i, i+1)
	e.peer.unfinished--
}

func (b *backlog) unready(e *entry) {
	i := slices.Index(b.ready, e)
	b.ready = slices.Delete(b.ready, i, i+1)
}

// share is that of addr, with one entry more.
func (b *backlog) share(addr netip.Addr) *peerShare {
	s := b.peers[addr]
	if s == nil {
		s = &peerShare{addr: addr}
		b.peers[addr] = s
	}
	s.entries++
	return s
}

// unshare ends the entry's part in its share.
func (b *backlog) unshare(e *entry) {
	if e.peer.entries--; e.peer.entries == 0 {
		delete(b.peers, e.peer.addr)
	}
}
