package fabric

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// sendGroup sends one packet by reference to a group, in the toy's run.
func (e *toy) sendGroup(g *Group, payload []byte, h Holder) (n int) {
	e.inTurn(func() {
		k := e.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.UDSendOnly, PSN: 5})
		k.Net.TrafficClass = 3
		k.AddRef(payload)
		k.Holder = h
		n = e.port.SendGroup(g, k)
	})
	return n
}

// TestGroupMembersGetAPacketEach checks that each member, the sender included if it is one, gets
// the payload, the group's address and the network header, and that the holder is told of each.
func TestGroupMembersGetAPacketEach(t *testing.T) {
	f := New(Config{Virtual: true})
	toys := []*toy{{}, {}, {}, {}}
	attach(t, f, toys...)
	group := gid(0x1234)
	payload := []byte("the payload")
	for _, e := range toys[:3] {
		e.onPacket = func(k *Packet) {
			if !bytes.Equal(payloadOf(k), payload) || k.Dst != group || k.Src != gid(0) || k.Net.TrafficClass != 3 {
				t.Errorf("a member got %q from %v to %v, %+v", payloadOf(k), k.Src, k.Dst, k.Net)
			}
		}
		e.inTurn(func() { e.port.Join(group); e.port.Join(group) })
	}
	var held counter
	g := f.Group(group)
	if n := toys[0].sendGroup(g, payload, &held); n != 3 {
		t.Fatalf("sent to %d members, want 3", n)
	}
	settle(f, 1)
	if held.done.Load() != 3 {
		t.Fatalf("the holder was told %d times, want once for each packet", held.done.Load())
	}
	toys[1].inTurn(func() { toys[1].port.Leave(group); toys[1].port.Leave(group) })
	toys[2].port.Detach()
	if n := toys[0].sendGroup(g, payload, &held); n != 1 {
		t.Fatalf("sent to %d members after one left and one was detached, want 1", n)
	}
	settle(f, 2)
	if held.done.Load() != 4 {
		t.Fatalf("the holder was told %d times, want 4", held.done.Load())
	}
	for i, want := range []int{2, 1, 1, 0} {
		if got := len(toys[i].psns); got != want {
			t.Fatalf("port %d took %d packets, want %d", i, got, want)
		}
	}
	toys[0].inTurn(func() { toys[0].port.Leave(group) })
	if n := toys[3].sendGroup(g, payload, &held); n != 0 || held.done.Load() != 5 {
		t.Fatalf("an empty group: sent to %d, holder told %d times, want 0 and 5", n, held.done.Load())
	}
	if s := toys[3].port.Stats(); s.Unknown != 1 || s.TxPackets != 1 {
		t.Fatalf("an empty group counts as an unknown destination: %+v", s)
	}
}
