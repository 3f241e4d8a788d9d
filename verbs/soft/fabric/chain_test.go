package fabric

import (
	"slices"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
	"pgregory.net/rapid"
)

// seqs returns the seq of k and of the packets that follow it by next.
func seqs(k *Packet) (got []uint64) {
	for ; k != nil; k = k.next {
		got = append(got, k.seq)
	}
	return got
}

// chainOf returns n packets numbered from first on.
func chainOf(first uint64, n int) (c chain) {
	for i := range n {
		c.add(&Packet{seq: first + uint64(i)})
	}
	return c
}

// Rule: a mailbox returns every packet once, in the order of pushing, independent of the chains; a
// pile returns every packet once.
func TestChainsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var box mailbox
		var heap returnStack
		var want []uint64
		next := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			n := rapid.IntRange(0, 5).Draw(t, "packets, or 0 to take")
			if n > 0 {
				box.push(chainOf(next, n), nil, int64(n), false)
				heap.put(chainOf(next, n))
				for range n {
					want = append(want, next)
					next++
				}
				continue
			}
			if box.empty() != (len(want) == 0) {
				t.Fatalf("empty is %v with %d packets", box.empty(), len(want))
			}
			first := box.takeAll()
			if got := seqs(first); !slices.Equal(got, want) {
				t.Fatalf("the mailbox gave %v, want %v", got, want)
			}
			for k := first; k != nil; k = k.next {
				if k.below != nil || k.last != nil {
					t.Fatalf("packet %d keeps the links of its chain", k.seq)
				}
			}
			got := seqs(heap.takeAll())
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("the pile gave %v, want %v", got, want)
			}
			want = nil
		}
	})
}

// Rule: with many producers each packet comes once, and in its producer's order.
func TestChainsOfManyProducers(t *testing.T) {
	const producers, chains = 4, 2000
	var box mailbox
	var heap returnStack
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			seq := uint64(p) << 32
			for i := range chains {
				n := 1 + i%3
				box.push(chainOf(seq, n), nil, int64(n), false)
				heap.put(chainOf(seq, n))
				seq += uint64(n)
			}
		})
	}
	total := producers * sumOf(chains)
	var next [producers]uint64
	piled := map[uint64]bool{}
	for n := 0; n < total || len(piled) < total; {
		for k := box.takeAll(); k != nil; k = k.next {
			if p := k.seq >> 32; k.seq&0xffffffff != next[p] {
				t.Fatalf("packet %d of producer %d came when %d was due", k.seq&0xffffffff, p, next[p])
			} else {
				next[p]++
			}
			n++
		}
		for k := heap.takeAll(); k != nil; k = k.next {
			if piled[k.seq] {
				t.Fatalf("the pile gave packet %x twice", k.seq)
			}
			piled[k.seq] = true
		}
	}
	wg.Wait()
	if !box.empty() || heap.takeAll() != nil {
		t.Fatal("there is more than was pushed")
	}
}

// sumOf returns the number of packets in chains of 1, 2 and 3.
func sumOf(chains int) (n int) {
	for i := range chains {
		n += 1 + i%3
	}
	return n
}

// Rule: a packet goes to the port that was at its address when it was sent, even if another takes
// the address during the run.
func TestAddressThatMovesInATurn(t *testing.T) {
	f := New(Config{Virtual: true})
	a, old, fresh := &toy{}, &toy{}, &toy{}
	attach(t, f, a, old)
	a.inTurn(func() {
		a.send(gid(1), wire.RCSendOnly, 1, u64(1), nil)
		old.port.Detach()
		attachAt(t, f, 1, fresh)
		a.send(gid(1), wire.RCSendOnly, 2, u64(1), nil)
		a.send(gid(1), wire.RCSendOnly, 3, u64(1), nil)
	})
	settle(f, 0)
	if !slices.Equal(fresh.psns, psns(2, 3)) || len(old.psns) != 0 {
		t.Errorf("the new port got %v, the old one %v; want [2 3] and none", fresh.psns, old.psns)
	}
}

// Rule: the packets that a run returns go to their own pools; but the first of another port's stays
// here.
func TestReturnsGoHome(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b, c := &toy{}, &toy{}, &toy{}
	attach(t, f, a, b, c)
	var from []*Port
	a.inTurn(func() { a.send(gid(2), wire.RCSendOnly, 1, u64(1), nil) })
	b.inTurn(func() { b.send(gid(2), wire.RCSendOnly, 2, u64(1), nil) })
	a.inTurn(func() { a.send(gid(2), wire.RCSendOnly, 3, u64(1), nil) })
	c.port.Exclusive(func() {
		for k := c.port.Take(); k != nil; k = c.port.Take() {
			from = append(from, k.home)
			c.port.Return(k)
		}
	})
	if want := []*Port{a.port, b.port, a.port}; !slices.Equal(from, want) {
		t.Fatalf("c took packets of %v", from)
	}
	for _, e := range []*toy{a, b} {
		const want = 1
		n := 0
		for k := e.port.returned.takeAll(); k != nil; k = k.next {
			if n++; k.home != e.port {
				t.Errorf("a packet of another port is in the pool")
			}
		}
		if n != want {
			t.Errorf("%d packets came home, want %d", n, want)
		}
	}
}

// Rule: a packet that a port keeps for its answer comes home with it, or from wherever it is sent:
// no traffic makes more packets than were ever in flight at once, plus one for each port.
func TestPacketsAreNotMadeForEver(t *testing.T) {
	const rounds = 100
	for name, sends := range map[string][][2]int{ // from and to; the receiver takes it at once
		"an exchange":                    {{0, 1}, {1, 0}},
		"a relay":                        {{0, 1}, {1, 2}},
		"a ring":                         {{0, 1}, {1, 2}, {2, 0}},
		"two questions, one answer":      {{0, 1}, {0, 1}, {1, 0}},
		"answers to whom did not ask":    {{0, 1}, {1, 2}, {2, 1}, {1, 2}},
		"an exchange and one to oneself": {{0, 0}, {0, 1}, {1, 0}, {0, 0}},
	} {
		f := New(Config{Virtual: true})
		ends := []*toy{{deaf: true}, {deaf: true}, {deaf: true}}
		attach(t, f, ends...)
		made := map[*Packet]bool{}
		for range rounds {
			for _, s := range sends {
				ends[s[0]].inTurn(func() { ends[s[0]].send(gid(s[1]), wire.RCSendOnly, 1, u64(1), nil) })
				ends[s[1]].inTurn(func() {
					k := ends[s[1]].port.Take()
					made[k] = true
					ends[s[1]].port.Return(k)
				})
			}
		}
		if most := 1 + len(ends); len(made) > most {
			t.Errorf("%s: %d packets in %d rounds, want at most %d", name, len(made), rounds, most)
		}
	}
}

// Rule: all of a port's own packets go back to its list.
func TestOwnPacketsGoBackToTheList(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{deaf: true}
	attach(t, f, a)
	const burst = 5
	for range 2 {
		a.inTurn(func() {
			for range burst {
				a.send(gid(0), wire.RCSendOnly, 1, u64(1), nil)
			}
		})
		a.inTurn(func() {
			for k := a.port.Take(); k != nil; k = a.port.Take() {
				a.port.Return(k)
			}
		})
		n := 0
		for k := a.port.free; k != nil; k = k.next {
			n++
		}
		if n != burst || a.port.spare != nil {
			t.Fatalf("%d packets in the list, want %d, and none kept beside it", n, burst)
		}
	}
}

// Rule: an exchange of single packets puts none into a pile, which takes atomic operations: the
// question and the answer use the same packet.
func TestAnswersTakeThePacketOfTheQuestion(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{deaf: true}, &toy{deaf: true}
	attach(t, f, a, b)
	var sent, taken *Packet
	a.inTurn(func() {
		a.send(gid(1), wire.RCSendOnly, 1, u64(1), nil)
		sent = a.port.routes[wire.To(gid(1))].out.first
	})
	b.inTurn(func() {
		b.port.Return(b.port.Take())
		b.send(gid(0), wire.RCAcknowledge, 1, nil, nil)
	})
	a.inTurn(func() {
		taken = a.port.Take()
		a.port.Return(taken)
	})
	if taken != sent {
		t.Error("the answer is another packet")
	}
	if a.port.free != sent || a.port.returned.takeAll() != nil || b.port.returned.takeAll() != nil {
		t.Error("the packet is not in its port's own list, or not alone")
	}
}

// Rule: a change of a link during a run affects the packets sent after it, not those before.
func TestLinkThatChangesInATurn(t *testing.T) {
	traced := 0
	for name, change := range map[string]func(f *Fabric, a *toy){
		"goes down":            func(f *Fabric, _ *toy) { f.SetLink(gid(0), gid(1), Link{Down: true}) },
		"is cut":               func(f *Fabric, _ *toy) { f.Partition([]verbs.GID{gid(0)}, []verbs.GID{gid(1)}) },
		"loses its own end":    func(_ *Fabric, a *toy) { a.port.SetDown(true) },
		"has someone watching": func(f *Fabric, _ *toy) { f.SetTrace(func(Event) { traced++ }, false) },
	} {
		f := New(Config{Virtual: true})
		a, b := &toy{}, &toy{}
		attach(t, f, a, b)
		a.inTurn(func() {
			for i := range 2 {
				a.send(gid(1), wire.RCSendOnly, wire.PSN(i), u64(1), nil)
			}
			change(f, a)
			a.send(gid(1), wire.RCSendOnly, 2, u64(1), nil)
		})
		settle(f, 0)
		want := psns(0, 1)
		if name == "has someone watching" {
			want = psns(0, 1, 2)
		}
		if !slices.Equal(b.psns, want) {
			t.Errorf("when the link %s %v arrived, want %v", name, b.psns, want)
		}
	}
	if traced != 1 {
		t.Errorf("%d packets were seen, want the one sent after SetTrace", traced)
	}
}
