package runtime

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// backlogBed is a backlog together with the test's own record of each request and its stage. The
// methods of backlogBed call the methods of the backlog, and check the results against the record.
type backlogBed struct {
	t interface{ Fatalf(string, ...any) }
	backlog
	now  time.Time
	all  []*backlogPeer // all requests in the backlog, in order of arrival
	nth  int            // number of the next request
	back int            // calls of putBack; each call may take the backlog one request above its limit
}

// backlogPeer is one request and the test's record of it.
type backlogPeer struct {
	entry
	n      int // number in the order of arrival; -1 for a request that was put back
	addr   netip.Addr
	at     stage     // the stage that the request must have
	making bool      // the request's connection is being prepared
	since  time.Time // when the preparation ended
}

func newBacklogBed(t interface{ Fatalf(string, ...any) }, most int) *backlogBed {
	return &backlogBed{t: t, backlog: newBacklog(most), now: time.Unix(1000, 0)}
}

func backlogAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

func (b *backlogBed) peerOf(e *entry) *backlogPeer {
	for _, p := range b.all {
		if &p.entry == e {
			return p
		}
	}
	b.t.Fatalf("the backlog returned an entry that is not in the test's record")
	return nil
}

// count returns the number of requests of addr that are at one of the given stages. If
// addr is everyAddr, it counts the requests of all addresses.
func (b *backlogBed) count(addr netip.Addr, at ...stage) (n int) {
	for _, p := range b.all {
		if slices.Contains(at, p.at) && (!addr.IsValid() || p.addr == addr) {
			n++
		}
	}
	return n
}

var everyAddr netip.Addr

func (b *backlogBed) drop(p *backlogPeer) {
	p.at = stageNone
	b.all = slices.DeleteFunc(b.all, func(o *backlogPeer) bool { return o == p })
}

// admit adds a new request of addr to the backlog. The result p is the new request, or nil
// if the backlog refuses it. The result out is the request that was evicted for p, or nil.
func (b *backlogBed) admit(addr netip.Addr) (p, out *backlogPeer) {
	p = &backlogPeer{n: b.nth, addr: addr}
	b.nth++
	in := b.count(everyAddr, stageWaiting, stageBegun, stageReady)
	some := slices.ContainsFunc(b.all, b.mayGive)
	victim, ok := b.backlog.admit(&p.entry, addr, b.now)
	if full := in >= b.most; ok != (!full || some) || (victim != nil) != (full && ok) {
		b.t.Fatalf("a new request came to a backlog with %d of at most %d requests, some of which may be evicted: %t: admitted=%t, evicted another=%t; want %t and %t",
			in, b.most, some, ok, victim != nil, !full || some, full && some)
	}
	if victim != nil {
		out = b.peerOf(victim)
		b.gaveWay(out, addr)
	}
	if !ok {
		return nil, out
	}
	p.at = stageWaiting
	b.all = append(b.all, p)
	return p, out
}

// mayGive reports whether a request may be evicted for a new one.
func (b *backlogBed) mayGive(p *backlogPeer) bool {
	return p.at == stageWaiting || p.at == stageBegun && !p.mayAnswer(b.now)
}

// gaveWay checks that the backlog was right to evict the request out for a new request of addr.
func (b *backlogBed) gaveWay(out *backlogPeer, addr netip.Addr) {
	unfinished := func(a netip.Addr) int {
		n := b.count(a, stageWaiting, stageBegun)
		if a == addr {
			n++
		}
		return n
	}
	if !b.mayGive(out) {
		b.t.Fatalf("request %d at stage %d was evicted, whose peer may be answering", out.n, out.at)
	}
	for _, p := range b.all {
		if !b.mayGive(p) {
			continue
		}
		if u, most := unfinished(p.addr), unfinished(out.addr); u > most {
			b.t.Fatalf("the evicted request is of %v, which has %d unfinished requests; want one of %v, which has %d", out.addr, most, p.addr, u)
		}
		if p.addr == out.addr && (p.at < out.at || p.at == out.at && p.n < out.n) {
			b.t.Fatalf("the evicted request of %v is number %d at stage %d; want number %d at stage %d", p.addr, out.n, out.at, p.n, p.at)
		}
	}
	b.leaves(out)
}

// leaves records that the request p was evicted.
func (b *backlogBed) leaves(p *backlogPeer) {
	switch p.at {
	case stageWaiting:
		b.drop(p)
	case stageBegun:
		p.at = stageLeaving
	default:
		b.t.Fatalf("a request at stage %d was evicted, want one that is waiting or begun", p.at)
	}
}

// next calls backlog.next, which begins one handshake, evicts one request, or does
// nothing. The method checks the choice of the backlog.
func (b *backlogBed) next(calls int) (begun, out *backlogPeer, wake time.Time) {
	begin, end, wake := b.backlog.next(b.now, calls)
	making, quick := 0, 0
	for _, p := range b.all {
		if p.making {
			making++
		}
		if p.at == stageBegun && !p.claimed && (p.making || b.now.Sub(p.since) < slowAfter) {
			quick++
		}
	}
	may := quick < calls && making < maxPreparing
	switch {
	case begin != nil:
		p := b.peerOf(begin)
		each, all := b.count(p.addr, stageBegun, stageLeaving), b.count(everyAddr, stageBegun, stageLeaving)
		if !may || p.at != stageWaiting || each >= b.limit(p.peer) || all >= b.begunMost {
			b.t.Fatalf("next began the handshake of a request at stage %d, with %d connections in preparation, %d calls, %d quick handshakes, %d handshakes of its address and %d of all addresses; want no handshake to begin",
				p.at, making, calls, quick, each, all)
		}
		for _, o := range b.all {
			n := b.count(o.addr, stageBegun, stageLeaving)
			if o.at == stageWaiting && (n < each || n == each && o.n < p.n) {
				b.t.Fatalf("request %d begins, whose address has %d handshakes; want request %d, whose address has %d", p.n, each, o.n, n)
			}
		}
		p.at, p.making = stageBegun, true
		return p, nil, wake
	case end != nil:
		p := b.peerOf(end)
		if !may || p.at != stageBegun || p.making || b.now.Sub(p.since) < handshakePatience {
			b.t.Fatalf("a request at stage %d (in preparation: %t) was evicted %v after its preparation, with %d calls, %d quick handshakes and %d connections in preparation; want no eviction",
				p.at, p.making, b.now.Sub(p.since), calls, quick, making)
		}
		b.leaves(p)
		return nil, p, wake
	case !wake.IsZero():
		if calls == 0 || making == maxPreparing || !wake.After(b.now) {
			b.t.Fatalf("at %v, with %d calls and %d connections in preparation, next returned the wake time %v; want a time in the future, or none", b.now, calls, making, wake)
		}
	case calls > 0 && making < maxPreparing && b.count(everyAddr, stageWaiting) > 0 && b.count(everyAddr, stageLeaving) == 0 && making == 0:
		b.t.Fatalf("%d requests wait, but next began none, evicted none and returned no wake time; want one of these three", b.count(everyAddr, stageWaiting))
	}
	return nil, nil, wake
}

func (b *backlogBed) made(p *backlogPeer) {
	b.backlog.prepared(&p.entry, b.now)
	p.making, p.since = false, b.now
}

func (b *backlogBed) established(p *backlogPeer) {
	if ok := b.establish(&p.entry, b.now); ok != (p.at == stageBegun) {
		b.t.Fatalf("establish of a request at stage %d returned %t, want %t", p.at, ok, p.at == stageBegun)
	}
	if p.at == stageBegun {
		p.at = stageReady
	}
}

func (b *backlogBed) gone(p *backlogPeer) {
	b.remove(&p.entry)
	b.drop(p)
}

// check compares the test's record with the backlog.
func (b *backlogBed) check() {
	addrs := map[netip.Addr]bool{}
	for _, p := range b.all {
		addrs[p.addr] = true
		if p.stage != p.at || p.entry.making != p.making {
			b.t.Fatalf("request %d is at stage %d, in preparation: %t; want stage %d, in preparation: %t", p.n, p.stage, p.entry.making, p.at, p.making)
		}
	}
	if in := b.count(everyAddr, stageWaiting, stageBegun, stageReady); in != b.len() || in > b.most+b.back {
		b.t.Fatalf("the backlog counts %d requests, want %d, and at most %d (the limit and the requests that were put back)", b.len(), in, b.most+b.back)
	}
	if len(addrs) != len(b.peers) {
		b.t.Fatalf("the backlog has entries of %d addresses, want %d", len(b.peers), len(addrs))
	}
}

// Rule: whatever the sequence of events, requests are admitted, begun and evicted by the rules in the
// comment of the type backlog.
func TestBacklogRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBacklogBed(t, rapid.IntRange(1, 24).Draw(t, "most"))
		one := func(what string, at ...stage) *backlogPeer {
			var of []*backlogPeer
			for _, p := range b.all {
				if slices.Contains(at, p.at) {
					of = append(of, p)
				}
			}
			if len(of) == 0 {
				t.Skip("no request is at these stages")
			}
			return rapid.SampledFrom(of).Draw(t, what)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) { b.admit(backlogAddr(rapid.IntRange(1, 4).Draw(t, "address"))) },
			"pump": func(t *rapid.T) {
				for begun, out, _ := b.next(100); begun != nil || out != nil; begun, out, _ = b.next(100) {
				}
			},
			"begin one": func(t *rapid.T) { b.next(rapid.IntRange(0, 3).Draw(t, "calls")) },
			"claimed": func(t *rapid.T) {
				if p := one("who", stageBegun); p.making {
					p.claimed = true
				}
			},
			"answers": func(t *rapid.T) {
				if p := one("who", stageBegun); p.making {
					p.answers = true
				}
			},
			"made": func(t *rapid.T) {
				if p := one("who", stageBegun, stageLeaving); p.making {
					b.made(p)
				}
			},
			"establish": func(t *rapid.T) {
				if p := one("who", stageBegun, stageLeaving); !p.making {
					b.established(p)
				}
			},
			"gone": func(t *rapid.T) {
				if p := one("who", stageWaiting, stageBegun, stageReady, stageLeaving); !p.making {
					b.gone(p)
				}
			},
			"closed by its peer": func(t *rapid.T) {
				p := one("who", stageReady)
				b.leave(&p.entry)
				p.at = stageLeaving
			},
			"accepted and given back": func(t *rapid.T) {
				p := one("who", stageReady)
				b.remove(&p.entry)
				b.drop(p)
				if rapid.Bool().Draw(t, "another came") {
					b.admit(p.addr)
				}
				b.putBack(&p.entry)
				p.at, p.n, b.back = stageReady, -1, b.back+1
				b.all = append([]*backlogPeer{p}, b.all...)
				if b.ready[0] != &p.entry {
					t.Fatalf("the request that was put back is not the first of backlog.ready")
				}
			},
			"time": func(t *rapid.T) {
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) { b.check() },
		})
	})
}

// Rule: the size of a backlog determines how many handshakes may have begun, in all and of one
// address.
func TestBacklogLimits(t *testing.T) {
	for most, want := range map[int][2]int{DefaultBacklog: {64, 16}, 1: {1, 1}, 2: {1, 1}, 8: {4, 1}, 16: {8, 2}} {
		if b := newBacklog(most); [2]int{b.begunMost, b.begunEach} != want {
			t.Errorf("a backlog of %d permits %d handshakes, %d of them of one address; want %v", most, b.begunMost, b.begunEach, want)
		}
	}
}

// Rule: if a new request comes to a backlog with the requests that the table lists, the new request
// is admitted without an eviction, or evicts the request that the table names, or is refused.
func TestFullBacklog(t *testing.T) {
	const a, b, c = 1, 2, 3
	type is struct {
		addr int
		at   stage
	}
	for what, test := range map[string]struct {
		has     []is // the requests in the backlog, in order of arrival
		comes   int  // the address of the new request
		out     int  // index of the evicted request in the list has; -1: none
		refused bool // the new request is refused
	}{
		"there is room":                       {[]is{{a, stageReady}, {a, stageWaiting}, {b, stageReady}}, b, -1, false},
		"all are established":                 {[]is{{a, stageReady}, {a, stageReady}, {b, stageReady}, {b, stageReady}}, c, -1, true},
		"one is unfinished":                   {[]is{{a, stageReady}, {b, stageBegun}, {a, stageReady}, {a, stageReady}}, a, 1, false},
		"the address with most unfinished":    {[]is{{b, stageWaiting}, {a, stageWaiting}, {a, stageWaiting}, {a, stageWaiting}}, b, 1, false},
		"the new request counts, too":         {[]is{{a, stageWaiting}, {b, stageWaiting}, {b, stageReady}, {c, stageReady}}, b, 1, false},
		"waiting before begun":                {[]is{{a, stageBegun}, {a, stageBegun}, {a, stageWaiting}, {a, stageWaiting}}, b, 2, false},
		"begun, if none of its address waits": {[]is{{b, stageWaiting}, {a, stageBegun}, {a, stageBegun}, {c, stageReady}}, c, 1, false},
		"equal numbers: the oldest waiting":   {[]is{{a, stageBegun}, {b, stageWaiting}, {c, stageWaiting}, {b, stageReady}}, 4, 1, false},
		"established requests do not count":   {[]is{{a, stageReady}, {a, stageReady}, {a, stageWaiting}, {b, stageWaiting}}, b, 3, false},
	} {
		t.Run(what, func(t *testing.T) {
			bed := newBacklogBed(t, 4)
			bed.begunMost, bed.begunEach = 4, 4
			var peers []*backlogPeer
			// Each request reaches its stage before the next request is admitted.
			for _, h := range test.has {
				p, _ := bed.admit(backlogAddr(h.addr))
				peers = append(peers, p)
				if h.at == stageWaiting {
					continue
				}
				p.stage, p.at = stageBegun, stageBegun // set directly, because backlog.next would choose the oldest request
				p.peer.begun++
				bed.begun++
				if h.at == stageReady {
					bed.established(p)
				}
			}
			p, out := bed.admit(backlogAddr(test.comes))
			bed.check()
			if (p == nil) != test.refused {
				t.Errorf("the admission of the new request: refused=%t, want refused=%t", p == nil, test.refused)
			}
			if test.out < 0 && out != nil || test.out >= 0 && out != peers[test.out] {
				t.Errorf("%s was evicted, want request %d (-1: none)", backlogName(peers, out), test.out)
			}
		})
	}
}

func backlogName(peers []*backlogPeer, p *backlogPeer) string {
	if p == nil {
		return "no request"
	}
	return fmt.Sprintf("request %d", slices.Index(peers, p))
}

// Rule: if the peers of an address stay silent, the address occupies only its share of handshakes,
// and handshakes of other addresses begin at once. After handshakePatience, silent handshakes are
// evicted, one for each waiting request.
func TestSilentHandshakesGiveWay(t *testing.T) {
	b := newBacklogBed(t, DefaultBacklog)
	pump := func() (begun []*backlogPeer, out int) {
		for {
			in, gone, _ := b.next(DefaultBacklog)
			switch {
			case in != nil:
				b.made(in)
				begun = append(begun, in)
			case gone != nil:
				out++
				b.gone(gone)
			default:
				return begun, out
			}
		}
	}
	for range 10 * DefaultBacklog {
		b.admit(backlogAddr(1))
		pump()
	}
	if n := b.count(everyAddr, stageBegun); n != b.begunEach {
		t.Fatalf("%d handshakes of the silent address have begun, want %d", n, b.begunEach)
	}
	p, _ := b.admit(backlogAddr(2))
	if begun, out := pump(); len(begun) != 1 || begun[0] != p || out != 0 {
		t.Fatalf("after a request of another address %d handshakes began and %d were evicted, want only the handshake of this request to begin", len(begun), out)
	}
	b.established(p)
	_, _, wake := b.next(DefaultBacklog)
	if want := b.now.Add(handshakePatience); !wake.Equal(want) {
		t.Fatalf("next returned the wake time %v, want %v", wake, want)
	}
	b.now = wake
	if begun, out := pump(); len(begun) != b.begunEach || out != b.begunEach {
		t.Errorf("after handshakePatience %d handshakes were evicted and %d began, want %d of each", out, len(begun), b.begunEach)
	}
	b.check()
}

// Rule: if only one call of Accept waits at a raw listener, a silent peer occupies it for slowAfter: then the
// handshake of the next request begins beside the silent one. A peer whose connection a call of PrepareAccept has
// claimed occupies no other call.
func TestSilentHandshakeOfTheOnlyAccepterGivesWay(t *testing.T) {
	b := newBacklogBed(t, DefaultBacklog)
	silent, _ := b.admit(backlogAddr(1))
	if begun, _, _ := b.next(1); begun != silent {
		t.Fatal("the handshake of the first request did not begin")
	}
	second, _ := b.admit(backlogAddr(2))
	if begun, _, wake := b.next(1); begun != nil || !wake.IsZero() {
		t.Fatalf("beside a handshake in preparation next began %v and returned the wake time %v, want neither", begun, wake)
	}
	b.made(silent)
	_, _, wake := b.next(1)
	if want := b.now.Add(slowAfter); !wake.Equal(want) {
		t.Fatalf("next returned the wake time %v, want %v", wake, want)
	}
	b.now = wake
	if begun, out, _ := b.next(0); begun != nil || out != nil {
		t.Error("with no call next began or evicted a handshake, want neither")
	}
	if begun, out, _ := b.next(1); begun != second || out != nil {
		t.Error("the handshake of the second request did not begin beside the silent one")
	}
	b.made(second)
	second.claimed = true
	third, _ := b.admit(backlogAddr(3))
	if begun, _, _ := b.next(1); begun != third {
		t.Error("the handshake of the third request did not begin beside one that a call of PrepareAccept has claimed")
	}
	b.check()
}

// Rule: the addresses of a /64 network of IPv6 are counted together, and other addresses each by itself.
func TestAddressesOfOneNetworkCountTogether(t *testing.T) {
	b := newBacklog(DefaultBacklog)
	share := func(addr string) *peerShare { return b.share(netip.MustParseAddr(addr)) }
	if share("2001:db8:0:1::1") != share("2001:db8:0:1:ffff::2") {
		t.Error("two addresses of a /64 network are counted apart")
	}
	for _, of := range [][2]string{{"2001:db8:0:1::1", "2001:db8:0:2::1"}, {"10.0.0.1", "10.0.0.2"}, {"::ffff:10.0.0.1", "::ffff:10.0.0.2"}} {
		if share(of[0]) == share(of[1]) {
			t.Errorf("%s and %s are counted together", of[0], of[1])
		}
	}
}
