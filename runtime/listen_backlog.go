package runtime

import (
	"net/netip"
	"slices"
	"time"
)

// These constants limit the handshakes of a listener. With the default options a begun handshake
// costs 100 KiB for its queues and receives, and some 200 µs of processor time. A waiting request costs
// little, because it has no queue pair and no receives. So the limits bound the cost of peers that
// do not finish their handshakes.
const (
	// handshakesPart limits the begun handshakes of all addresses to Options.Backlog /
	// handshakesPart. The rest of Options.Backlog is for waiting requests and established
	// connections.
	handshakesPart = 2
	// handshakesEachPart limits the begun handshakes of one address to Options.Backlog /
	// handshakesPart / handshakesEachPart. So there is room for other addresses. Each handshake of the
	// address that finishes raises its limit by one, until what is left is the limit of one other address. One
	// that is evicted takes the limit back. A peer that finishes its handshakes occupies a place for a round
	// trip only.
	handshakesEachPart = 4
	// handshakePatience is the age from which backlog.next may evict a handshake for a waiting
	// request. A live peer answers within a round trip; the rest of the second is a margin for a
	// busy machine. So with the default Options.Backlog (128) backlog.next evicts at most 64
	// handshakes a second, and at most 16 of an address that finishes none. If the backlog is full,
	// backlog.admit may also evict a younger handshake.
	handshakePatience = time.Second
	// answerMargin is added to the time that the peer needs for its answer, for a busy machine, before
	// backlog.admit evicts a handshake: until then the peer may have the acceptance, and its program a
	// connection, that the eviction ends.
	answerMargin = 100 * time.Millisecond
	// slowAfter is the age from which a handshake does not count any more for the call of Accept for which it began on
	// a raw listener: the next handshake begins for this call. A peer of a data center answers within a
	// millisecond. If a later one answers after all, the next call gets its connection. With the default
	// Options.Backlog, 127 silent peers of as many addresses delay a call by 1.7 s: 0.6 s until begunMost of their
	// handshakes have begun, and as long again after handshakePatience.
	slowAfter = 10 * time.Millisecond
	// maxPreparing is the maximum number of connections that are prepared concurrently. It also
	// limits how many requests one pass accepts, and so how long accepting delays the pass.
	maxPreparing = 2
)

// stage is the state of a request in its listener's backlog.
//
//	        admit            next             establish          Accept
//	(none) ───────> waiting ───────> begun ───────────────> ready ──────> (none)
//	                   │               │ evicted by              │ ended, and
//	                   │ evicted,      │ admit or next           │ nothing to read
//	                   │ remove        v          leave          │
//	                   │            leaving <────────────────────┘
//	                   v               │ remove
//	                 (none) <──────────┘
//
// The method remove may be called in any stage. A leaving request does not count against
// Options.Backlog, but it counts as a handshake of its address until its connection is gone. So the
// limits for handshakes also bound the memory of connections that are being closed.
type stage uint8

const (
	stageNone    stage = iota
	stageWaiting       // no handshake yet
	stageBegun         // its handshake has begun
	stageReady         // its connection is established, and no Accept has taken it
	stageLeaving       // its connection is being closed
)

// backlog decides which requests a listener keeps, which handshakes begin, and which requests are
// evicted. It does no I/O and reads no clock. Only the holder of the listener's turn uses it.
//
// An unfinished request is a waiting or a begun request. The number of handshakes of an address is
// the number of its begun and leaving requests. The addresses of a /64 network of IPv6 count as one: a single
// host may have all of them.
//
// These are the rules for a new request:
//
//   - If fewer than backlog.most requests are waiting, begun or ready, there is room for the new
//     request. Otherwise the new request evicts an unfinished request.
//   - The evicted request is of the address with the most unfinished requests. The new request is
//     counted, too, for its own address.
//   - The oldest waiting request of this address is evicted. If none is waiting, the oldest begun
//     request is evicted. If several addresses have the most unfinished requests, this rule applies
//     to the requests of all these addresses together.
//   - A begun request whose acceptance is under way is not evicted before its peer had the time to
//     answer (entry.patience). A request that cannot be evicted is passed over: the
//     rules above apply to the others.
//   - If no request can be evicted, the new request is refused.
//
// These are the rules for the next handshake:
//
//   - The next handshake is for the waiting request whose address has the fewest handshakes. If
//     there are several such requests, the next handshake is for the oldest.
//   - The handshake begins if all addresses together have fewer than backlog.begunMost handshakes,
//     the address of the request has fewer handshakes than its limit (backlog.limit), and fewer
//     handshakes are quick than calls wait for a connection. A handshake is quick if it is younger than
//     slowAfter and no call has claimed it.
//   - If its limit prevents the handshake, the oldest begun request of the same address is evicted.
//   - Otherwise, if begunMost prevents the handshake, the oldest begun request of the address with the
//     most handshakes is evicted.
//   - A begun request can be evicted for a handshake only if its own handshake is at least
//     handshakePatience old, and its peer had the time to answer. The address with the most handshakes is chosen among the addresses
//     that have such a request.
//   - While a leaving request is about to make room for the handshake, no request is evicted for
//     the handshake.
type backlog struct {
	// The limits: of waiting, begun and ready requests together; of handshakes of all addresses;
	// and of handshakes of one address that has finished none.
	most, begunMost, begunEach int

	unfinished []*entry // waiting and begun requests, in the order of arrival
	ready      []*entry // ready requests, in the order of establishment
	peers      map[netip.Addr]*peerShare
	begun      int // begun and leaving requests
	leaving    int // leaving requests
	preparing  int // requests whose connection is being prepared, even if they were evicted meanwhile
}

// entry is the part of a request that the backlog uses.
type entry struct {
	stage  stage
	making bool // its connection is being prepared
	// answers is set when the connection begins to accept the request: from then on the acceptance may be
	// under way to the peer.
	answers bool
	claimed bool // a call of PrepareAccept has claimed it
	peer    *peerShare
	since   time.Time // when the preparation of the connection ended: from then on the peer can answer
	req     *request  // the whole request; the backlog does not use this field
}

// A peerShare counts the requests of one address. It stays in backlog.peers until the last entry of
// the address is removed.
type peerShare struct {
	addr       netip.Addr // of IPv6: the first of its /64 network
	entries    int
	unfinished int // waiting and begun
	begun      int // begun and leaving
	leaving    int
	finished   int // handshakes that have finished since one was evicted
	// trip is the longest time in which a peer of the address has answered an acceptance; 0 if none has.
	trip time.Duration
}

func newBacklog(most int) backlog {
	begun := max(1, most/handshakesPart)
	return backlog{most: most, begunMost: begun, begunEach: max(1, begun/handshakesEachPart), peers: map[netip.Addr]*peerShare{}}
}

// len returns the number of waiting, begun and ready requests.
func (b *backlog) len() int { return len(b.unfinished) + len(b.ready) }

// limit returns how many handshakes of an address may have begun.
func (b *backlog) limit(s *peerShare) int {
	return min(b.begunEach+s.finished, max(b.begunEach, b.begunMost-b.begunEach))
}

// patience returns how long a peer may take for its answer: the round trip of its path and answerMargin. Of an
// address that has answered none the round trip is not known, and handshakePatience stands for both.
func (e *entry) patience() time.Duration {
	if e.peer.trip == 0 {
		return handshakePatience
	}
	return e.peer.trip + answerMargin
}

// mayAnswer reports whether the acceptance of a begun request may be under way, and its peer has had no time to
// answer.
func (e *entry) mayAnswer(now time.Time) bool {
	return e.answers && (e.making || now.Before(e.since.Add(e.patience())))
}

// admit adds the request e of the address addr, at the time now. If the backlog is full, admit evicts another
// request and returns it. The caller must then end the evicted request. If no request can be
// evicted, admit does not add e, and returns false.
func (b *backlog) admit(e *entry, addr netip.Addr, now time.Time) (out *entry, ok bool) {
	e.peer = b.share(addr)
	e.peer.unfinished++
	if b.len() >= b.most {
		if out = b.victim(now); out == nil {
			e.peer.unfinished--
			b.unshare(e)
			return nil, false
		}
		if out.stage == stageBegun {
			b.evict(out)
		} else {
			b.remove(out)
		}
	}
	e.stage = stageWaiting
	b.unfinished = append(b.unfinished, e)
	return out, true
}

// victim returns the request to evict for a new request, or nil if no request can be evicted. The
// caller has already counted the new request in the peerShare of its address.
func (b *backlog) victim(now time.Time) (worst *entry) {
	for _, e := range b.unfinished { // oldest first
		switch {
		case e.stage == stageBegun && e.mayAnswer(now):
		case worst == nil, e.peer.unfinished > worst.peer.unfinished:
			worst = e
		case e.peer.unfinished == worst.peer.unfinished && e.stage < worst.stage: // waiting before begun
			worst = e
		}
	}
	return worst
}

// next begins the next handshake, or evicts a request to make room for the next
// handshake. At most one of the results is not zero:
//
//	begin   a request whose handshake begins now
//	out     an evicted request, which the caller must end
//	wake    the time at which the caller must repeat the call
//
// If all results are zero, no handshake can begin until the backlog or the number of calls changes.
// The argument calls is the number of calls that wait for a connection and for which none is ready. If it is 0,
// all results are zero.
func (b *backlog) next(now time.Time, calls int) (begin, out *entry, wake time.Time) {
	if b.preparing == maxPreparing || calls == 0 {
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
	quick, slow := b.quick(now)
	var of *peerShare // evict only requests of this address; nil stands for all addresses
	leaving := b.leaving
	switch {
	case quick >= calls:
		return nil, nil, slow
	case begin.peer.begun >= b.limit(begin.peer):
		of = begin.peer
		leaving = of.leaving
	case b.begun < b.begunMost:
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
		due := e.since.Add(max(handshakePatience, e.patience()))
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
	b.evict(out)
	return nil, out, time.Time{}
}

// quick returns the number of quick handshakes, and when the first of them becomes slow; zero if none does
// before its preparation has ended.
func (b *backlog) quick(now time.Time) (n int, slow time.Time) {
	for _, e := range b.unfinished {
		if e.stage != stageBegun || e.claimed {
			continue
		}
		if e.making {
			n++
		} else if at := e.since.Add(slowAfter); at.After(now) {
			if n++; slow.IsZero() || at.Before(slow) {
				slow = at
			}
		}
	}
	return n, slow
}

// evict moves a begun request that the backlog evicts to the stage stageLeaving.
func (b *backlog) evict(e *entry) {
	e.peer.finished = 0
	b.leave(e)
}

// prepared records that the preparation of the connection of e has ended at the given time,
// successfully or not. The age of the handshake is counted from that time.
func (b *backlog) prepared(e *entry, now time.Time) {
	if e.making {
		e.making, e.since = false, now
		b.preparing--
	}
}

// establish makes a begun request ready, at the time now. If the request is not begun any more, because it
// was evicted, establish returns false.
func (b *backlog) establish(e *entry, now time.Time) bool {
	if e.stage != stageBegun {
		return false
	}
	b.finish(e)
	e.peer.finished = min(e.peer.finished+1, b.begunMost) // more make no difference
	if !e.making {                                        // otherwise the peer has answered before the preparation has ended
		e.peer.trip = max(e.peer.trip, min(now.Sub(e.since), handshakePatience))
	}
	e.peer.begun--
	b.begun--
	e.stage = stageReady
	b.ready = append(b.ready, e)
	return true
}

// putBack makes a removed request ready again. It is called if an accepted connection comes back,
// because the future of the Accept was discarded. The request becomes the first in backlog.ready.
func (b *backlog) putBack(e *entry) {
	e.stage, e.peer = stageReady, b.share(e.peer.addr)
	b.ready = slices.Insert(b.ready, 0, e)
}

// leave moves a begun or ready request to the stage stageLeaving. The caller must close
// the connection of the request, and call remove() when the connection is gone.
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

// remove removes a request from the backlog, in any stage.
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

// waits reports whether a request is waiting.
func (b *backlog) waits() bool {
	return slices.ContainsFunc(b.unfinished, func(e *entry) bool { return e.stage == stageWaiting })
}

// finish removes a request from backlog.unfinished.
func (b *backlog) finish(e *entry) {
	i := slices.Index(b.unfinished, e)
	b.unfinished = slices.Delete(b.unfinished, i, i+1)
	e.peer.unfinished--
}

func (b *backlog) unready(e *entry) {
	i := slices.Index(b.ready, e)
	b.ready = slices.Delete(b.ready, i, i+1)
}

// share counts one more entry of addr, and returns the peerShare of addr.
func (b *backlog) share(addr netip.Addr) *peerShare {
	if addr.Is6() && !addr.Is4In6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	s := b.peers[addr]
	if s == nil {
		s = &peerShare{addr: addr}
		b.peers[addr] = s
	}
	s.entries++
	return s
}

// unshare undoes the call of share() that counted e.
func (b *backlog) unshare(e *entry) {
	if e.peer.entries--; e.peer.entries == 0 {
		delete(b.peers, e.peer.addr)
	}
}
