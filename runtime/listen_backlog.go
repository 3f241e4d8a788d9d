package runtime

import (
	"net/netip"
	"slices"
	"time"
)

// Limits of a listener's handshakes. By default a begun handshake costs half a MiB, for its
// receives, and some 400 µs of processor time. A waiting request has no queue pair and no
// receives. So these limits bound the cost of peers that do not finish their requests.
const (
	// handshakesPart limits the begun handshakes to Options.Backlog / handshakesPart. The rest
	// of the backlog is for waiting requests and established connections.
	handshakesPart = 2
	// handshakesEachPart limits the begun handshakes of one address, so that other addresses
	// find room, to Options.Backlog / handshakesPart / handshakesEachPart.
	handshakesEachPart = 4
	// handshakePatience is the age at which a handshake may be evicted for a waiting request.
	// A live peer answers within a round trip; the rest is a margin for a busy machine. So
	// by default at most 64 handshakes a second begin and are evicted, 16 of one address. An
	// exception: if established connections fill the rest of the backlog, no request can
	// wait, and each new request evicts a begun handshake at once.
	handshakePatience = time.Second
	// maxPreparing is the maximum number of connections that are prepared concurrently. It
	// also limits how many requests are accepted in one pass: accepting takes time.
	maxPreparing = 2
)

// stage is the state of a request in its listener's backlog.
//
//	        admit            next             establish           take
//	(none) ───────> waiting ───────> begun ───────────────> ready ──────> (none)
//	                   │               │ evicted by              │ ended, and
//	                   │ evicted,      │ admit or next           │ nothing to read
//	                   │ remove        v          leave          │
//	                   │            leaving <────────────────────┘
//	                   v               │ remove
//	                 (none) <──────────┘
//
// The method remove may be called in any stage. A leaving request does not count in the backlog,
// but it counts as a handshake of its address until its connection is gone. So the limits of
// handshakes also bound the memory of connections that are being closed.
type stage uint8

const (
	stageNone    stage = iota
	stageWaiting       // no handshake yet
	stageBegun         // its handshake has begun
	stageReady         // its connection is established and not accepted
	stageLeaving       // its connection is being closed
)

// backlog decides which requests a listener keeps, which handshakes begin, and which requests are
// evicted. It does no I/O and reads no clock. It belongs to the holder.
//
//   - At most `most` requests are waiting, begun or ready.
//   - At most `begunMost` requests are begun or leaving, and `begunEach` of one address.
//   - A new request that finds no room evicts an unfinished (waiting or begun) request of the
//     address with the most unfinished requests. The new request counts for its own address.
//     The oldest waiting request is evicted, or, if none waits, the oldest begun one. If all
//     requests are ready, the new request is refused.
//   - The next handshake is that of a waiting request of the address with the fewest
//     handshakes, the oldest of these. If a limit forbids it, a begun request older than
//     handshakePatience is evicted: if the limit is begunEach, the oldest of the same
//     address, else the oldest of the address with the most handshakes. None is evicted
//     while a leaving request is about to make room.
type backlog struct {
	most, begunMost, begunEach int

	unfinished []*entry // waiting and begun, in the order of arrival
	ready      []*entry // established, in the order of establishment
	peers      map[netip.Addr]*peerShare
	begun      int // begun and leaving requests
	leaving    int
	preparing  int // begun requests whose connection is being prepared
}

// entry is the part of a request that the backlog uses.
type entry struct {
	stage  stage
	making bool // its connection is being prepared
	peer   *peerShare
	since  time.Time // the time from which the peer can answer: its connection was prepared then
	req    *request  // the request of this entry; not used by the backlog
}

// peerShare counts the requests of an address. It is in backlog.peers until its last entry is
// removed.
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

// len returns the number of requests that count against the backlog.
func (b *backlog) len() int { return len(b.unfinished) + len(b.ready) }

// The method admit adds a request of addr. If there is no room, it evicts and returns another
// request, out, which the caller must end. If no request can be evicted, admit refuses e and
// returns false.
func (b *backlog) admit(e *entry, addr netip.Addr) (out *entry, ok bool) {
	e.peer = b.share(addr)
	e.peer.unfinished++
	if b.len() >= b.most {
		if out = b.victim(); out == nil {
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

// victim returns the request to evict for a new request, or nil. The caller has already counted the
// new request in its peerShare.
func (b *backlog) victim() (worst *entry) {
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

// The method next returns one of three results: begin, a request whose handshake begins now; out,
// an evicted request that the caller must end to make room; or wake, the time to call next again.
// If all three are zero, no handshake can begin until the backlog changes. The argument room is how
// many more handshakes the caller permits. If room is 0, no handshake begins, but next may evict a
// begun request. If room is negative, next returns zeros.
func (b *backlog) next(now time.Time, room int) (begin, out *entry, wake time.Time) {
	if b.preparing == maxPreparing || room < 0 {
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
	var of *peerShare // evict only a request of this address; nil: of any address
	leaving := b.leaving
	switch {
	case begin.peer.begun >= b.begunEach:
		of = begin.peer
		leaving = of.leaving
	case room > 0 && b.begun < b.begunMost:
		begin.stage, begin.making = stageBegun, true
		begin.peer.begun++
		b.begun++
		b.preparing++
		return begin, nil, wake
	}
	if leaving > 0 { // a leaving request is about to make room
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

// The method prepared records that the preparation of a connection has ended, successfully or not.
// The request may be evicted when handshakePatience has passed from now on.
func (b *backlog) prepared(e *entry, now time.Time) {
	if e.making {
		e.making, e.since = false, now
		b.preparing--
	}
}

// establish makes a begun request ready. It returns false if the request was evicted.
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

// putBack makes a request ready again whose connection an Accept had taken. The request gets the
// first place in ready.
func (b *backlog) putBack(e *entry) {
	e.stage, e.peer = stageReady, b.share(e.peer.addr)
	b.ready = slices.Insert(b.ready, 0, e)
}

// The method leave moves a begun or ready request to stage leaving. The caller closes the request's
// connection, and calls remove when the connection is gone.
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

// The method remove forgets a request in any stage.
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

// finish removes a request from unfinished.
func (b *backlog) finish(e *entry) {
	i := slices.Index(b.unfinished, e)
	b.unfinished = slices.Delete(b.unfinished, i, i+1)
	e.peer.unfinished--
}

func (b *backlog) unready(e *entry) {
	i := slices.Index(b.ready, e)
	b.ready = slices.Delete(b.ready, i, i+1)
}

// share returns the peerShare of addr, and counts one more entry in it.
func (b *backlog) share(addr netip.Addr) *peerShare {
	s := b.peers[addr]
	if s == nil {
		s = &peerShare{addr: addr}
		b.peers[addr] = s
	}
	s.entries++
	return s
}

// unshare undoes the call of share for e.
func (b *backlog) unshare(e *entry) {
	if e.peer.entries--; e.peer.entries == 0 {
		delete(b.peers, e.peer.addr)
	}
}
