package fabric

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

func TestAPortSendsToItself(t *testing.T) {
	for _, virtual := range []bool{true, false} {
		f := New(Config{Virtual: virtual})
		a := &toy{answers: true}
		attach(t, f, a)
		sendMany(a, 0, 2, wire.RCSendOnly)
		if virtual {
			settle(f, 0)
		}
		a.inTurn(func() {
			if want := psns(1, 2, 1, 2); !slices.Equal(a.psns, want) {
				t.Errorf("virtual %v: requests and answers %v, want %v", virtual, a.psns, want)
			}
		})
	}
}

func TestUnknownDestinationIsDroppedAndCounted(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a)
	var c counter
	route := (*Route)(nil)
	a.inTurn(func() {
		a.send(gid(1), wire.UDSendOnly, 1, u64(1), &c)
		route = a.port.Route(wire.To(gid(1)))
		k := a.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: 2})
		k.Holder = &c
		a.port.SendTo(route, k)
	})
	if s := a.port.Stats(); s.Unknown != 2 || c.done.Load() != 2 || route.Reachable() {
		t.Errorf("unknown %d, holders told %d, reachable %v; want 2, 2, false", s.Unknown, c.done.Load(), route.Reachable())
	}
	attachAt(t, f, 1, b)
	sendMany(a, 1, 1, wire.RCSendOnly)
	settle(f, 0)
	if len(b.psns) != 1 || !route.Reachable() {
		t.Error("the route does not lead to the port attached later")
	}
	b.port.Detach()
	again := &toy{}
	attachAt(t, f, 1, again)
	sendMany(a, 1, 1, wire.RCSendOnly)
	settle(f, 0)
	if len(again.psns) != 1 || len(b.psns) != 1 {
		t.Error("the route does not lead to the port attached in the place of another")
	}
}

func TestAddressesCalledAtRandomLeaveNothing(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{}
	attach(t, f, a)
	a.inTurn(func() {
		for i := range 1000 {
			a.send(gid(1000+i), wire.UDSendOnly, 1, nil, nil)
		}
	})
	if len(f.routes) != 0 || len(a.port.routes) != 0 {
		t.Errorf("%d routes in the fabric, %d at the port, to addresses where nobody is", len(f.routes), len(a.port.routes))
	}
}

func TestDetachDropsWhatWaits(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	var c counter
	a.inTurn(func() {
		for i := range 5 {
			a.send(gid(1), wire.RCSendOnly, wire.PSN(i), u64(1), &c)
		}
	})
	if c.done.Load() != 0 {
		t.Fatal("holders told while the packets wait in the inbox")
	}
	b.port.Detach()
	b.port.Detach() // idempotent
	if s := b.port.Stats(); c.done.Load() != 5 || s.Late != 5 || s.RxPackets != 0 {
		t.Errorf("after Detach %d of 5 holders told, %+v", c.done.Load(), s)
	}
	settle(f, 0)
	if b.turns != 0 {
		t.Error("turned after Detach")
	}
	sendMany(a, 1, 1, wire.RCSendOnly)
	if s := a.port.Stats(); s.Unknown != 1 {
		t.Errorf("a packet to where a port was counts as %+v, want unknown destination", s)
	}
}

func TestPayloadOfMixedSegments(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	var got, want []byte
	b.onPacket = func(k *Packet) { got = payloadOf(k) }
	for range 2 { // the second packet is reused
		want = nil
		a.inTurn(func() {
			k := a.port.Get()
			if len(k.Payload) != 0 || k.PayloadLen != 0 || k.HdrLen != 0 || k.Holder != nil {
				t.Error("Get gave a packet that is not empty")
			}
			for i := range 3 * inlineSegs { // grows past the inline array, and own grows under its segments
				seg := bytes.Repeat([]byte{byte(i)}, i*7)
				if i%2 == 0 {
					k.AddRef(seg)
				} else {
					k.AddCopy(seg)
				}
				want = append(want, seg...)
			}
			k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly})
			a.port.Send(wire.To(gid(1)), k)
		})
		settle(f, 0)
		if !bytes.Equal(got, want) {
			t.Errorf("arrived %x, want %x", got, want)
		}
	}
}

func TestTimeOfTurnsNeverGoesBack(t *testing.T) {
	f := New(Config{Virtual: true})
	var last time.Duration
	a := &toy{onTurn: func(now time.Duration) { last = now }}
	attach(t, f, a)
	a.port.progress(10)
	a.port.progress(5) // a runner that read its clock before the other took the token
	if last != 10 || a.port.Now() != 10 {
		t.Errorf("turned at %d after 10", last)
	}
}

func TestMisuseOfPacketsPanics(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	var kept *Packet
	b.onPacket = func(k *Packet) { kept = k }
	sendMany(a, 1, 1, wire.RCSendOnly)
	settle(f, 0)
	// In this order: kept stays in the pool until the next Get.
	for _, c := range []struct {
		name   string
		misuse func()
	}{
		{"releasing twice", func() { kept.Release() }},
		{"sending after release", func() { a.port.Send(wire.To(gid(1)), kept) }},
		{"releasing what was sent", func() { k := a.port.Get(); a.port.Send(wire.To(gid(1)), k); k.Release() }},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", c.name)
				}
			}()
			c.misuse()
		}()
	}
}

func TestStatsCountBothEnds(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	f.SetLink(gid(0), gid(1), Link{Rules: []Rule{
		{From: 1, To: 1, Drop: true}, {From: 2, To: 2, Dup: true},
		{From: 3, To: 3, Corrupt: true, Offset: 1, Mask: 1}, {From: 4, To: 4, Delay: 1},
	}})
	a.inTurn(func() {
		for i := range 5 {
			a.send(gid(1), wire.RCSendOnly, wire.PSN(i), u64(0), nil)
		}
	})
	settle(f, 10)
	const size = wire.BTHLen + 8
	wantA := Stats{TxPackets: 5, TxBytes: 5 * size, Dropped: 1, Duplicated: 1, Corrupted: 1, Delayed: 1}
	wantB := Stats{RxPackets: 5, RxBytes: 5 * size, Malformed: 1}
	if got := a.port.Stats(); got != wantA {
		t.Errorf("sender %+v, want %+v", got, wantA)
	}
	if got := b.port.Stats(); got != wantB {
		t.Errorf("receiver %+v, want %+v", got, wantB)
	}
}

// Rule: a packet that is delayed or doubled keeps the mark of a stranger's, and gives it up with its use.
func TestAStrangersPacketStaysOne(t *testing.T) {
	f := New(Config{Virtual: true})
	from := &toy{}
	attach(t, f, from)
	from.inTurn(func() {
		k, c := from.port.Get(), from.port.Get()
		k.Stranger = true
		k.AddRef([]byte("answer"))
		k.MakeOwn()
		k.cloneInto(c)
		if !k.Stranger || !c.Stranger {
			t.Errorf("a stranger's packet: delayed %v, doubled %v, want true", k.Stranger, c.Stranger)
		}
		from.port.Return(k)
		from.port.Return(c)
		if k = from.port.Get(); k.Stranger {
			t.Error("a packet is a stranger's from its last use")
		}
		from.port.Return(k)
	})
}
