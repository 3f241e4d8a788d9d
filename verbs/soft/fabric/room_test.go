package fabric

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
	"pgregory.net/rapid"
)

// waiting returns the packets and units in a port's inbox. The fabric must be at rest.
func (p *Port) waiting() (packets int, units int64) {
	for c := p.in.head.Load(); c != nil; c = c.below {
		for k := c; ; k = k.next {
			packets++
			units += k.weight()
			if k == c.last {
				break
			}
		}
	}
	return packets, units
}

// flood sends n packets with copied payload of the given size in one run.
func (e *toy) flood(n int, dst verbs.GID, payload int) {
	b := make([]byte, payload)
	e.inTurn(func() {
		for i := range n {
			k := e.port.Get()
			k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: wire.NewPSN(uint32(i))})
			k.AddCopy(b)
			e.port.Send(wire.To(dst), k)
		}
	})
}

// Rule: one source fills its share of an inbox and no more; packets beyond that are dropped and
// counted. Others still get through, and when the endpoint takes again, so does the source.
func TestSourceHasItsShare(t *testing.T) {
	for _, payload := range []int{0, 8, 4096, 32 << 10} {
		t.Run(fmt.Sprint(payload), func(t *testing.T) {
			f := New(Config{Virtual: true})
			flooder, honest, deaf := &toy{}, &toy{}, &toy{}
			attach(t, f, flooder, honest, deaf)
			const flood = 10 * inboxUnits / fullShares
			flooder.flood(flood, gid(2), payload)
			n, units := deaf.port.waiting()
			share, last := int64(inboxUnits/fullShares), int64(1+payload/unitBytes)
			if units < share || units >= share+last {
				t.Errorf("%d packets of %d units wait, want %d units, and of the last packet what it has", n, units, share)
			}
			if s := flooder.port.Stats(); s.Overflow != uint64(flood-n) || s.TxPackets != flood {
				t.Errorf("%d of %d packets were counted as dropped, want %d", s.Overflow, s.TxPackets, flood-n)
			}
			honest.flood(50, gid(2), payload)
			settle(f, 0)
			if got := len(deaf.psns); got != n+50 {
				t.Errorf("%d packets arrived, want %d of the flood and all 50 of another source", got, n)
			}
			flooder.flood(10, gid(2), payload)
			settle(f, 0)
			if got := len(deaf.psns); got != n+60 {
				t.Errorf("%d packets arrived in the end, want %d: there is room again", got, n+60)
			}
		})
	}
}

// Rule: for any number of sources, an inbox is bounded as a whole. The packets that one port has in
// flight to any number of endpoints that take nothing are bounded by the shares.
func TestInboxIsBoundedForAnyNumberOfSources(t *testing.T) {
	const sources, each = 1500, 100
	f := New(Config{Virtual: true})
	target, toys := &toy{}, make([]*toy, sources)
	attach(t, f, target)
	for i := range toys {
		toys[i] = &toy{}
		attachAt(t, f, i+1, toys[i])
	}
	var sent, dropped uint64
	for _, e := range toys {
		e.flood(each, gid(0), 8)
		s := e.port.Stats()
		sent, dropped = sent+s.TxPackets, dropped+s.Overflow
	}
	n, units := target.port.waiting()
	// A chain that finds the inbox empty is not counted.
	if most := int64(inboxUnits + inboxUnits/fullShares); units > most || units < inboxUnits/2 {
		t.Errorf("%d sources have %d units in one inbox, want at most %d", sources, units, most)
	}
	if sent != sources*each || dropped != sent-uint64(n) {
		t.Errorf("%d packets sent, %d wait and %d were counted as dropped", sent, n, dropped)
	}
	settle(f, 0)
	if len(target.psns) != n {
		t.Errorf("%d packets arrived, want the %d that waited", len(target.psns), n)
	}
	made := 0
	for i := range toys {
		target.flood(each, gid(i+1), 8)
	}
	for _, e := range toys {
		n, _ := e.port.waiting()
		made += n
	}
	var most int64 // a link that filled its share while there were fewer keeps it
	for i := range toys {
		most += min(each, shareOf(i+1))
	}
	if int64(made) > most {
		t.Errorf("one port has %d packets on the way, want at most %d", made, most)
	}
}

// roomy is an endpoint that sends when the link has room.
type roomy struct {
	port   *Port
	route  *Route
	want   atomic.Int64 // to send; set by any goroutine, taken by the runner
	turns  int
	waited int
}

func (e *roomy) Progress(time.Duration) (time.Duration, bool) {
	e.turns++
	for k := e.port.Take(); k != nil; k = e.port.Take() {
		e.port.Return(k)
	}
	for ; e.want.Load() > 0; e.want.Add(-1) {
		if e.port.Room(e.route) == 0 {
			e.waited++
			return 0, false
		}
		k := e.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly})
		e.port.SendTo(e.route, k)
	}
	return 0, false
}

func attachRoomy(t *testing.T, f *Fabric, node, to int) *roomy {
	t.Helper()
	e := &roomy{}
	p := must.Get(f.Attach(gid(node), "roomy", e))(t)
	t.Cleanup(p.Detach)
	p.Exclusive(func() { e.port, e.route = p, p.Route(wire.To(gid(to))) })
	return e
}

// Rule: a sender that asks for room loses nothing, does not run while there is none, and runs when
// there is.
func TestRoomComesBack(t *testing.T) {
	const n = 20_000
	f := New(Config{Virtual: true})
	e, slow := attachRoomy(t, f, 0, 1), &toy{limit: 64, deaf: true}
	attachAt(t, f, 1, slow)
	e.want.Store(n)
	e.port.Kick()
	for range 100 {
		f.Step()
	}
	if got, _ := slow.port.waiting(); got != inboxUnits/fullShares/2 || e.turns > 4 {
		t.Errorf("%d packets wait for a deaf endpoint after %d turns, want %d", got, e.turns, inboxUnits/fullShares/2)
	}
	slow.deaf = false
	slow.port.Kick()
	settle(f, 0)
	if s := e.port.Stats(); len(slow.psns) != n || s.Overflow != 0 || e.want.Load() != 0 || e.waited < 10 {
		t.Errorf("%d of %d packets arrived, %d were dropped; the sender waited %d times", len(slow.psns), n, s.Overflow, e.waited)
	}
}

// Rule: the same in real time, with the two on different goroutines: no wake-up is lost between
// finding no room and room coming back.
func TestRoomIsNeverMissed(t *testing.T) {
	const n = 300_000
	f := New(Config{})
	e, slow := attachRoomy(t, f, 0, 1), &toy{limit: 100}
	attachAt(t, f, 1, slow)
	var got atomic.Int64
	done := make(chan struct{})
	slow.onPacket = func(*Packet) {
		slow.psns = slow.psns[:0]
		if got.Add(1) == n {
			close(done)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // runs them on two goroutines at once
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				slow.port.Exclusive(func() {})
			}
		}
	}()
	for range n / 100 {
		e.want.Add(100)
		e.port.Kick()
	}
	await(t, "the last packet", done)
	close(stop)
	<-stopped
	if s := e.port.Stats(); s.Overflow != 0 {
		t.Errorf("%d packets were dropped", s.Overflow)
	}
}

// Rule: the units of a packet come back in every case (taken, lost, doubled, delayed, dropped with
// its port, refused), so that no link loses room.
func TestUnitsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New(Config{Virtual: true, Seed: rapid.Uint64().Draw(t, "seed")})
		const nodes = 3
		var toys [nodes]*toy
		routes := map[*Route]bool{}
		plug := func(i int) {
			e := &toy{limit: rapid.IntRange(0, 50).Draw(t, "takes per turn, 0 is all"), deaf: rapid.Bool().Draw(t, "deaf")}
			p := must.Get(f.Attach(gid(i), "toy", e))(t)
			toys[i], e.port = e, p
		}
		for i := range toys {
			plug(i)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, nodes-1).Draw(t, "node")
			e := toys[i]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				e.flood(rapid.IntRange(1, 3000).Draw(t, "packets"), gid(rapid.IntRange(0, nodes-1).Draw(t, "to")), 1<<rapid.IntRange(0, 14).Draw(t, "payload"))
			case 2:
				for range rapid.IntRange(1, 20).Draw(t, "turns") {
					f.Step()
				}
			case 3:
				f.AdvanceTo(f.Now() + time.Millisecond)
			case 4:
				f.SetAll(Link{Loss: 0.2, Dup: 0.3, Reorder: 0.3, ReorderBy: time.Millisecond, Delay: time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * time.Millisecond})
			case 5:
				e.inTurn(func() { e.port.SetDown(!e.port.down) })
			case 6:
				e.port.Detach()
				plug(i)
			}
			f.mu.Lock()
			for _, r := range f.routes {
				routes[r] = true
			}
			f.mu.Unlock()
		}
		for _, e := range toys {
			e.limit, e.deaf = 0, false
			e.inTurn(func() { e.port.SetDown(false) })
		}
		settle(f, f.Now()+time.Second)
		for r := range routes {
			if r.admitted != r.left.Load()+r.unreported {
				t.Fatalf("link %v to %v: %d units were admitted, %d have left", r.src, r.path.Peer, r.admitted, r.left.Load()+r.unreported)
			}
		}
		for _, e := range toys {
			if n, _ := e.port.waiting(); n != 0 || e.port.in.held.Load() != 0 {
				t.Fatalf("an empty inbox has %d packets and counts %d units", n, e.port.in.held.Load())
			}
			e.port.Detach()
		}
	})
}

// Rule: packets that are delayed when the last port is detached return their units: a link with a
// script outlives its ports.
func TestUnitsOfTheDelayLineComeBack(t *testing.T) {
	f := New(Config{Virtual: true})
	e, other := &toy{}, &toy{}
	attach(t, f, e, other)
	f.SetAll(Link{Delay: time.Second})
	e.flood(100, gid(1), 8)
	r := e.port.routes[wire.To(gid(1))]
	e.port.Detach()
	other.port.Detach()
	if left := r.left.Load() + r.unreported; left != r.admitted {
		t.Errorf("%d units were admitted, %d have left", r.admitted, left)
	}
}

// Rule: a sender that found no room runs again when a full inbox refused its packets: none of them
// is in flight, so nothing else would wake it.
func TestRoomComesBackFromAFullInbox(t *testing.T) {
	const sources = inboxUnits/minShare + 1
	f := New(Config{Virtual: true})
	target := &toy{deaf: true}
	attachAt(t, f, 0, target)
	for i := range sources {
		e := &toy{}
		attachAt(t, f, i+2, e)
		e.flood(inboxUnits/fullShares, gid(0), 8)
	}
	e := attachRoomy(t, f, 1, 0)
	e.want.Store(100)
	e.port.Kick()
	settle(f, 0)
	if dropped := e.port.Stats().Overflow; e.want.Load() != 0 || e.waited == 0 || dropped != 100 {
		t.Errorf("of 100 packets %d were dropped and %d are not sent; the sender waited %d times", dropped, e.want.Load(), e.waited)
	}
}
