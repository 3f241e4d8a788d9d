package runtime

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Rule: a full backlog does not evict a handshake whose acceptance is under way before the round trip of its path, and
// answerMargin; one that its connection does not accept yet is evicted at once.
func TestAnAcceptanceUnderWayIsNotEvicted(t *testing.T) {
	const trip = 30 * time.Millisecond
	for _, known := range []bool{true, false} {
		b := newBacklogBed(t, 4)
		a := backlogAddr(1)
		wait := handshakePatience // the round trip is not known
		if known {
			first, _ := b.admit(a)
			b.next(1)
			first.answers = true
			b.made(first)
			b.now = b.now.Add(trip)
			b.established(first)
			wait = trip + answerMargin
		} else {
			p, _ := b.admit(backlogAddr(2))
			p.stage, p.at = stageBegun, stageBegun
			p.peer.begun++
			b.begun++
			b.established(p)
		}
		begun, _ := b.admit(a)
		b.next(1)
		begun.answers = true
		for range 2 { // established
			p, _ := b.admit(backlogAddr(3))
			p.stage, p.at = stageBegun, stageBegun
			p.peer.begun++
			b.begun++
			b.established(p)
		}
		if p, out := b.admit(a); p != nil || out != nil {
			t.Errorf("round trip known: %t: while the acceptance is prepared, a request was admitted, and evicted another: %t", known, out != nil)
		}
		b.made(begun)
		b.now = b.now.Add(wait - 1)
		if p, out := b.admit(a); p != nil || out != nil {
			t.Errorf("round trip known: %t: just before %v a request was admitted, and evicted another: %t", known, wait, out != nil)
		}
		b.now = b.now.Add(1)
		if p, out := b.admit(a); p == nil || out != begun {
			t.Errorf("round trip known: %t: after %v the silent handshake was not evicted", known, wait)
		}
		b.check()
	}
}

// Rule: an address that finishes its handshakes may have more of them begun, but leaves room for those of another
// address; after an eviction it has its first limit again.
func TestAnAddressThatFinishesHasMoreHandshakes(t *testing.T) {
	b := newBacklogBed(t, DefaultBacklog)
	fill := func(addr netip.Addr) (begun []*backlogPeer) {
		for {
			for b.count(addr, stageWaiting) < 2 {
				b.admit(addr)
			}
			p, _, _ := b.next(DefaultBacklog)
			if p == nil {
				return begun
			}
			b.made(p)
			begun = append(begun, p)
		}
	}
	a := backlogAddr(1)
	most := b.begunEach
	for range 4 {
		all := fill(a)
		if len(all) != most {
			t.Fatalf("%d handshakes have begun, want %d", len(all), most)
		}
		for _, p := range all {
			b.established(p)
			b.gone(p)
		}
		most = min(2*most, b.begunMost-b.begunEach)
	}
	if all := fill(a); len(all) != b.begunMost-b.begunEach {
		t.Fatalf("%d handshakes have begun, want %d", len(all), b.begunMost-b.begunEach)
	}
	if others := fill(backlogAddr(2)); len(others) != b.begunEach {
		t.Errorf("%d handshakes of another address have begun, want %d", len(others), b.begunEach)
	}
	for _, p := range slices.Clone(b.all) {
		if p.addr != a {
			b.gone(p)
		}
	}
	b.now = b.now.Add(handshakePatience)
	_, out, _ := b.next(DefaultBacklog)
	if out == nil || out.addr != a || b.limit(out.peer) != b.begunEach {
		t.Errorf("after handshakePatience no silent handshake of the address was evicted, or its limit stays")
	}
	b.check()
}
