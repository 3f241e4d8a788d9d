package fabric

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
	"pgregory.net/rapid"
)

// sendMany sends n packets from a to node dst, PSNs from 1, in one run.
func sendMany(a *toy, dst, n int, op wire.Opcode) {
	a.inTurn(func() {
		for i := range n {
			a.send(gid(dst), op, wire.PSN(i+1), nil, nil)
		}
	})
}

func psns(v ...wire.PSN) []wire.PSN { return v }

func TestRulesChoosePackets(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		want []wire.PSN // the PSNs of eight that arrive, after all delays
	}{
		{"the third", Rule{From: 3, To: 3, Drop: true}, psns(1, 2, 4, 5, 6, 7, 8)},
		{"from the sixth on", Rule{From: 6, Drop: true}, psns(1, 2, 3, 4, 5)},
		{"up to the sixth", Rule{To: 6, Drop: true}, psns(7, 8)},
		{"every third", Rule{Every: 3, Drop: true}, psns(2, 3, 5, 6, 8)},
		{"every second from the fourth", Rule{From: 4, Every: 2, Drop: true}, psns(1, 2, 3, 5, 7)},
		{"another opcode", Rule{Opcodes: []wire.Opcode{wire.RCSendOnly}, Drop: true}, psns(1, 2, 3, 4, 5, 6, 7, 8)},
		{"this opcode, second", Rule{Opcodes: []wire.Opcode{wire.RCSendOnly, wire.RCWriteOnly}, From: 2, To: 2, Drop: true}, psns(1, 3, 4, 5, 6, 7, 8)},
		{"twice", Rule{From: 2, To: 3, Dup: true}, psns(1, 2, 2, 3, 3, 4, 5, 6, 7, 8)},
		{"late", Rule{From: 2, To: 3, Delay: time.Millisecond}, psns(1, 4, 5, 6, 7, 8, 2, 3)},
		{"made unreadable", Rule{From: 5, To: 5, Corrupt: true, Offset: 1, Mask: 0x01}, psns(1, 2, 3, 4, 6, 7, 8)},
		{"corrupt outside", Rule{Corrupt: true, Offset: 28, Mask: 0xff}, psns(1, 2, 3, 4, 5, 6, 7, 8)},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			f := New(Config{Virtual: true})
			a, b := &toy{}, &toy{}
			attach(t, f, a, b)
			f.SetLink(gid(0), gid(1), Link{Rules: []Rule{c.rule}})
			sendMany(a, 1, 8, wire.RCWriteOnly)
			settle(f, time.Second)
			if !slices.Equal(b.psns, c.want) {
				t.Errorf("arrived %v, want %v", b.psns, c.want)
			}
		})
	}
}

func TestRuleCountsRestartWithSetLinkAndSurvivePartition(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	third := Link{Rules: []Rule{{From: 3, To: 3, Drop: true}}}
	f.SetLink(gid(0), gid(1), third)
	sendMany(a, 1, 2, wire.RCSendOnly)
	f.Partition([]verbs.GID{gid(0)}, []verbs.GID{gid(1)})
	sendMany(a, 1, 5, wire.RCSendOnly)
	f.Heal()
	sendMany(a, 1, 2, wire.RCSendOnly) // numbers three and four of the rule
	settle(f, 0)
	if want := psns(1, 2, 2); !slices.Equal(b.psns, want) {
		t.Fatalf("arrived %v, want %v", b.psns, want)
	}
	b.psns = nil
	f.SetLink(gid(0), gid(1), third)
	sendMany(a, 1, 4, wire.RCSendOnly)
	settle(f, 0)
	if want := psns(1, 2, 4); !slices.Equal(b.psns, want) {
		t.Errorf("after SetLink arrived %v, want %v", b.psns, want)
	}
}

func TestPartitionCutsBetweenGroupsOnly(t *testing.T) {
	f := New(Config{Virtual: true})
	toys := []*toy{{}, {}, {}, {}}
	attach(t, f, toys...)
	f.Partition([]verbs.GID{gid(0), gid(1)}, []verbs.GID{gid(2)}) // node 3 in no group
	reach := func(from, to int) bool {
		toys[to].psns = nil
		sendMany(toys[from], to, 1, wire.RCSendOnly)
		settle(f, f.Now())
		return len(toys[to].psns) == 1
	}
	for from := range toys {
		for to := range toys {
			cut := from == 2 && to < 2 || to == 2 && from < 2
			if reach(from, to) == cut {
				t.Errorf("node %d to node %d: reached %v, cut %v", from, to, !cut, cut)
			}
		}
	}
	if s := toys[2].port.Stats(); s.Dropped != 2 {
		t.Errorf("node 2 counts %d dropped packets, want 2", s.Dropped)
	}
	f.Heal()
	if !reach(0, 2) || !reach(2, 1) {
		t.Error("the partition is healed, but a link is still cut")
	}
}

func TestDownLinkIsOneDirection(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	f.SetLink(gid(0), gid(1), Link{Down: true})
	sendMany(a, 1, 3, wire.RCSendOnly)
	sendMany(b, 0, 3, wire.RCSendOnly)
	settle(f, 0)
	if len(b.psns) != 0 || len(a.psns) != 3 {
		t.Errorf("%d packets over the link that is down, %d back; want 0 and 3", len(b.psns), len(a.psns))
	}
	f.SetLink(gid(0), gid(1), Link{})
	sendMany(a, 1, 3, wire.RCSendOnly)
	settle(f, 0)
	if len(b.psns) != 3 {
		t.Errorf("%d packets over the link that is up again, want 3", len(b.psns))
	}
}

func TestSameDelayKeepsOrderAndReorderDoesNot(t *testing.T) {
	f := New(Config{Virtual: true, Seed: 1})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	f.SetAll(Link{Delay: 5 * time.Microsecond})
	sendMany(a, 1, 50, wire.RCSendOnly)
	settle(f, 5*time.Microsecond-1)
	if len(b.psns) != 0 {
		t.Fatal("packets arrived before their delay was over")
	}
	settle(f, 5*time.Microsecond)
	if len(b.psns) != 50 || !slices.IsSorted(b.psns) {
		t.Fatalf("packets with the same delay arrived as %v", b.psns)
	}
	b.psns = nil
	f.SetAll(Link{Reorder: 0.3})
	sendMany(a, 1, 50, wire.RCSendOnly)
	settle(f, time.Second)
	if len(b.psns) != 50 || slices.IsSorted(b.psns) {
		t.Errorf("with reordering arrived %v: want all, out of order", b.psns)
	}
	before := a.port.Stats().Delayed
	f.SetAll(Link{Reorder: 1, ReorderBy: 1})
	sendMany(a, 1, 50, wire.RCSendOnly)
	if n := a.port.Stats().Delayed - before; n != 50 {
		t.Errorf("%d of 50 reordered packets were held back, however short the time", n)
	}
}

// arrivals returns the packets that arrive at node 1 from node 0 over a lossy link with the given
// seed, when other links are used too.
func arrivals(t *testing.T, seed uint64, others int) []wire.PSN {
	f := New(Config{Virtual: true, Seed: seed})
	toys := []*toy{{}, {}}
	for range others {
		toys = append(toys, &toy{})
	}
	attach(t, f, toys...)
	f.SetAll(Link{Loss: 0.2, Dup: 0.2, Reorder: 0.2, Jitter: time.Microsecond})
	for range 20 {
		for o := range others {
			sendMany(toys[2+o], 1, 1, wire.UCSendOnly)
			sendMany(toys[0], 2+o, 1, wire.UCSendOnly)
		}
		sendMany(toys[0], 1, 10, wire.RCSendOnly)
		toys[1].onPacket = nil
		settle(f, f.Now()+time.Millisecond)
	}
	return toys[1].psns
}

func TestLinksDrawIndependently(t *testing.T) {
	alone := arrivals(t, 7, 0)
	if slices.Equal(alone, arrivals(t, 8, 0)) {
		t.Error("another seed gives the same losses")
	}
	// The other nodes send PSN 1 too; on the observed link, the loss pattern of PSNs 2 to 10 must
	// not change.
	strip := func(ps []wire.PSN) []wire.PSN {
		return slices.DeleteFunc(slices.Clone(ps), func(p wire.PSN) bool { return p == 1 })
	}
	if got := arrivals(t, 7, 3); !slices.Equal(strip(got), strip(alone)) {
		t.Errorf("links added beside it changed what arrives:\n %v\n %v", strip(got), strip(alone))
	}
}

func TestAttachRefusesATakenGID(t *testing.T) {
	f := New(Config{Virtual: true})
	attach(t, f, &toy{})
	_, err := f.Attach(gid(0), "second", &toy{})
	if !errors.Is(err, ErrGIDInUse) || !strings.Contains(err.Error(), "127.0.0.0") || !strings.Contains(err.Error(), "second") {
		t.Errorf("attaching at a taken GID: %v", err)
	}
}

// Rule: with any script, every packet sent is delivered, dropped or still waiting, besides copies;
// contents arrive unchanged though the sender overwrites them as soon as it is told, and it is told
// exactly once.
func TestEveryPacketIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prob := rapid.SampledFrom([]float64{0, 0, 0.1, 0.5, 1})
		f := New(Config{Virtual: true, Seed: rapid.Uint64().Draw(t, "seed")})
		link := Link{
			Loss: prob.Draw(t, "loss"), Dup: prob.Draw(t, "dup"), Reorder: prob.Draw(t, "reorder"),
			Delay:  time.Duration(rapid.IntRange(0, 2000).Draw(t, "delay")),
			Jitter: time.Duration(rapid.IntRange(0, 2000).Draw(t, "jitter")),
		}
		f.SetLink(gid(0), gid(1), link)
		a, b := &toy{}, &toy{}
		for i, e := range []*toy{a, b} {
			p := must.Get(f.Attach(gid(i), "toy", e))(t)
			e.port = p
		}
		b.onPacket = func(k *Packet) {
			var h wire.Header
			if _, err := wire.Parse(k.Header(), &h); err != nil {
				t.Fatal(err)
			}
			want := append(u64(uint64(h.PSN)), u64(^uint64(h.PSN))...)
			if got := payloadOf(k); !bytes.Equal(got, want) || k.PayloadLen != len(want) {
				t.Fatalf("packet %d arrived with %x, want %x", h.PSN, got, want)
			}
		}
		sent := rapid.IntRange(0, 60).Draw(t, "packets")
		told := make([]int, sent)
		for i := range sent {
			a.inTurn(func() {
				k := a.port.Get()
				k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: wire.PSN(i)})
				first := u64(uint64(i))
				k.AddRef(first)
				k.AddCopy(u64(^uint64(i)))
				k.Cookie = uint64(i)
				k.Holder = holderFunc(func(k *Packet) {
					told[k.Cookie]++
					clear(first)
				})
				a.port.Send(wire.To(gid(1)), k)
			})
			if rapid.Bool().Draw(t, "advance") {
				settle(f, f.Now()+time.Microsecond)
			}
		}
		detached := rapid.Bool().Draw(t, "detach early")
		if !detached {
			settle(f, time.Second)
		}
		b.port.Detach()
		a.port.Detach()
		for i, n := range told {
			if n != 1 {
				t.Fatalf("the holder of packet %d was told %d times", i, n)
			}
		}
		sa, sb := a.port.Stats(), b.port.Stats()
		if sa.TxPackets != uint64(sent) || !detached && sb.RxPackets+sa.Dropped != sa.TxPackets+sa.Duplicated {
			t.Fatalf("sent %d: sender %+v, receiver %+v", sent, sa, sb)
		}
	})
}

type holderFunc func(*Packet)

func (f holderFunc) PacketDone(k *Packet) { f(k) }
