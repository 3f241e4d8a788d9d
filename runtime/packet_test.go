package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	goruntime "runtime"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

func mustListenPacket(t *testing.T, rt *Runtime, o Options) *PacketConn {
	t.Helper()
	p := must.Get(rt.ListenPacket(":0", o))(t)
	return p
}

func mustResolve(t *testing.T, p *PacketConn, addr string) *Peer {
	t.Helper()
	e := must.Get(p.Resolve(testContext(t), addr))(t)
	return e
}

// packets returns a PacketConn on device 0 of the bed and a PacketConn on device 1.
func (d bed) packets(t *testing.T) (a, b *PacketConn) {
	t.Helper()
	a = mustListenPacket(t, d.open(t, Config{}, 0), Options{})
	return a, mustListenPacket(t, d.open(t, Config{}, 1), Options{})
}

func (p *PacketConn) sendBytes(t *testing.T, to *Peer, b []byte) {
	t.Helper()
	buf := bufferOf(t, p.rt, b)
	f, err := p.Send(testContext(t), to, buf.Slice())
	done(t, f, err)
}

func (p *PacketConn) mustRecv(t *testing.T) Packet {
	t.Helper()
	k := must.Get(p.RecvWait(testContext(t)))(t)
	return k
}

// take receives a datagram, releases it and returns its data.
func (p *PacketConn) take(t *testing.T) string {
	t.Helper()
	k := p.mustRecv(t)
	s := string(k.Data)
	if err := k.Release(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Rule: a datagram arrives with all its bytes. PeerOf returns the sender of the datagram as a Peer, and
// a reply to this Peer arrives.
func TestPacketAndReply(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.packets(t)
		packetAndReply(t, a, b, b.Addr().String())
	})
}

func packetAndReply(t *testing.T, a, b *PacketConn, addr string) {
	t.Helper()
	to := mustResolve(t, a, addr)
	for _, n := range []int{0, 1, 40, 1000, a.MaxPacket()} {
		data := bytes.Repeat([]byte{byte(n)}, n)
		a.sendBytes(t, to, data)
		k := b.mustRecv(t)
		if !bytes.Equal(k.Data, data) || k.HasImm {
			t.Fatalf("received %d bytes, HasImm %t; want %d bytes of value %d, HasImm false", len(k.Data), k.HasImm, n, byte(n))
		}
		back := must.Get(b.PeerOf(k))(t)
		if err := k.Release(); err != nil {
			t.Fatal(err)
		}
		buf := bufferOf(t, b.rt, []byte("ok"))
		f, err := b.SendImm(testContext(t), back, buf.Slice(), uint32(n))
		done(t, f, err)
		reply := a.mustRecv(t)
		if string(reply.Data) != "ok" || !reply.HasImm || reply.Imm != uint32(n) {
			t.Fatalf("the reply is %q, HasImm %t, Imm %d; want %q, true, %d", reply.Data, reply.HasImm, reply.Imm, "ok", n)
		}
		if err := errors.Join(reply.Release(), back.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: if a member sends a datagram to a multicast group, the other members get it, whichever devices
// they are on. If a PacketConn never joined the group, or has left it, the PacketConn does not get the
// datagram.
func TestMulticastGroup(t *testing.T) {
	group := netip.MustParseAddr("239.1.2.3")
	ctx := testContext(t)
	var members []*PacketConn
	var peers []*Peer
	places := []string{first.name, second.name, "soft2", "soft3"}
	if onDevice { // the tests have only two kernel devices, so two of the four PacketConns are on each device
		places[2], places[3] = second.name, first.name
	}
	for _, name := range places[:3] {
		p := mustListenPacket(t, mustOpen(t, Config{Device: name}), Options{})
		e := must.Get(p.Join(ctx, group))(t)
		members, peers = append(members, p), append(peers, e)
	}
	for _, name := range []string{"239.1.2.3", "::ffff:239.1.2.3"} {
		_, err := members[0].Join(ctx, netip.MustParseAddr(name))
		mistake(t, "the second Join of the same group", err, verbs.ErrInvalid, name)
	}
	outside := mustListenPacket(t, mustOpen(t, Config{Device: places[3]}), Options{})
	unasked := outside.Recv()
	members[0].sendBytes(t, peers[0], []byte("all"))
	for i, p := range members[1:] {
		if got := p.take(t); got != "all" {
			t.Errorf("member %d received %q, want %q", i+1, got, "all")
		}
	}
	if err := peers[2].Close(); err != nil {
		t.Fatal(err)
	}
	if err := members[2].sh.r.Do(ctx, func() {}); err != nil { // after this call members[2] has left the group
		t.Fatal(err)
	}
	late := members[2].Recv()
	members[0].sendBytes(t, peers[0], []byte("fewer"))
	if got := members[1].take(t); got != "fewer" {
		t.Errorf("member 1 received %q, want %q", got, "fewer")
	}
	if unasked.Settled() || late.Settled() {
		t.Errorf("a datagram to the group reached a PacketConn that is no member: one that has never joined %t, one that has left %t; want false, false",
			unasked.Settled(), late.Settled())
	}
	unasked.Discard()
	late.Discard()
}

// Rule: a zone is no part of a group: its address with a zone and without one is one group.
func TestAGroupHasNoZone(t *testing.T) {
	notOnDevice(t, "the devices have no group of IPv6 with this scope")
	p := mustListenPacket(t, mustOpen(t, Config{Device: first.name}), Options{})
	ctx := testContext(t)
	e := must.Get(p.Join(ctx, netip.MustParseAddr("ff02::77%lo")))(t)
	_, err := p.Join(ctx, netip.MustParseAddr("ff02::77"))
	mistake(t, "the second Join of the same group", err, verbs.ErrInvalid, "ff02::77")
	must.Do(t, e.Close())
	must.Do(t, must.Get(p.Join(ctx, netip.MustParseAddr("ff02::77")))(t).Close())
}

// Rule: when the context of Join has ended, the group can be joined at once, and the later membership stays. (The
// bug: "joined already", until the first membership had begun and was given up.)
func TestJoinRightAfterOneThatHasEnded(t *testing.T) {
	p := mustListenPacket(t, mustOpen(t, Config{Device: first.name}), Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	group := netip.MustParseAddr("239.1.2.4")
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.sh.r.Do(context.Background(), func() { close(held); <-release }) }()
	<-held // nothing but the function in Do runs with the turn
	cancel()
	if _, err := p.Join(ctx, group); !errors.Is(err, context.Canceled) {
		t.Errorf("a Join whose context has ended returned %v, want %v", err, context.Canceled)
	}
	_, second := p.join(group)
	close(release)
	must.Do(t, <-ended)
	e := must.Get(second.Await(testContext(t)))(t)
	must.Do(t, p.sh.r.Do(context.Background(), func() {
		if p.groups[verbs.GIDFromAddr(group)] == nil {
			t.Error("the end of the first Join ended the membership of the second")
		}
	}))
	must.Do(t, e.Close())
}

// Rule: if more datagrams arrive than receives are posted, the first datagrams fill the receives, and
// only the later datagrams are lost.
func TestPacketsBeyondTheReceivesAreLost(t *testing.T) {
	a := mustListenPacket(t, mustOpen(t, Config{Device: first.name}), Options{})
	b := mustListenPacket(t, mustOpen(t, Config{Device: second.name}), Options{RecvCredits: 4})
	to := mustResolve(t, a, b.Addr().String())
	for i := range 10 {
		a.sendBytes(t, to, []byte{byte(i)})
	}
	var kept []Packet
	for i := range 4 {
		k := b.mustRecv(t)
		if k.Data[0] != byte(i) {
			t.Errorf("receive %d got the datagram %d, want %d", i, k.Data[0], i)
		}
		kept = append(kept, k)
	}
	for _, k := range kept {
		if err := k.Release(); err != nil {
			t.Fatal(err)
		}
	}
	mistake(t, "the second Release of a datagram", kept[0].Release(), ErrMessage)
	for last := 3; ; {
		if err := b.sh.r.Do(testContext(t), b.sh.r.Flush); err != nil { // posts the released receives
			t.Fatal(err)
		}
		a.sendBytes(t, to, []byte("again"))
		got := b.take(t)
		if got == "again" {
			break
		}
		// Soft-RoCE completes a send before its datagram has arrived, so a later one may have found a
		// released receive. If such ones filled all receives, this "again" is lost.
		if !onDevice || len(got) != 1 || int(got[0]) <= last {
			t.Fatalf("after the releases the PacketConn received %q, want %q", got, "again")
		}
		last = int(got[0])
	}
}

// Rule: if a call has an invalid argument, or is not possible in the present state, its error names the
// mistake. The PacketConn stays usable until it is closed.
func TestPacketMistakes(t *testing.T) {
	a, b := mainBed.packets(t)
	ctx := testContext(t)
	to := mustResolve(t, a, b.Addr().String())
	_, err := a.Resolve(ctx, second.at("9"))
	if err == nil {
		t.Error("Resolve of a port where no PacketConn listens succeeded, want an error")
	}
	_, err = a.Resolve(ctx, "nowhere")
	mistake(t, "Resolve of an address without a port", err, ErrAddress, "nowhere")
	big := bufferOf(t, a.rt, make([]byte, a.MaxPacket()+1))
	_, err = a.Send(ctx, to, big.Slice())
	mistake(t, "Send of one byte more than MaxPacket", err, ErrTooLarge, fmt.Sprint(a.MaxPacket()))
	small := bufferOf(t, b.rt, []byte("x"))
	_, err = b.Send(ctx, to, small.Slice())
	mistake(t, "Send to a Peer of another PacketConn", err, verbs.ErrInvalid)
	_, err = a.PeerOf(Packet{})
	mistake(t, "PeerOf of the zero Packet", err, ErrMessage)
	one := must.Get(big.Slice().Sub(0, 1))(t)
	var f Future
	if err := a.sh.r.Do(ctx, func() { // nothing is posted while this function holds the turn
		f, err = a.Send(ctx, to, one)
		mistake(t, "Close of a Peer with an outstanding datagram", to.Close(), verbs.ErrBusy, "1 datagrams")
	}); err != nil {
		t.Fatal(err)
	}
	done(t, f, err)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(ctx, to, big.Slice())
	mistake(t, "Send of too many bytes to a closed Peer", err, ErrTooLarge)
	_, err = a.Send(ctx, to, one)
	mistake(t, "Send to a closed Peer", err, verbs.ErrClosed)
	waiting := a.Recv()
	for range 2 {
		if err := a.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := waiting.Await(ctx); !errors.Is(err, ErrConnClosed) {
		t.Errorf("a Recv that waited at Close ended with %v, want %v", err, ErrConnClosed)
	}
	_, err = a.Send(ctx, to, one)
	mistake(t, "Send after Close", err, ErrConnClosed)
	_, err = a.RecvWait(ctx)
	mistake(t, "RecvWait after Close", err, ErrConnClosed)
	if _, err := a.Join(ctx, netip.MustParseAddr("239.0.0.1")); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Join after Close returned %v, want %v", err, ErrConnClosed)
	}
}

// Rule: if an RDMA WRITE, or a SEND without a destination, is submitted to a Queue of type UD, the Queue
// refuses it. The error names the type UD.
func TestDatagramQueueRefusesRDMA(t *testing.T) {
	a, b := mainBed.packets(t)
	to := mustResolve(t, a, b.Addr().String())
	_, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, To: reactor.Dest{AH: to.ah, QPNum: to.qpn, QKey: to.qkey}}, &reactor.Payload{}, reactor.NonBlock)
	mistake(t, "a WRITE on a UD queue", err, reactor.ErrRequest, "RDMA_WRITE", "UD")
	_, err = a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{}, reactor.NonBlock)
	mistake(t, "a SEND without a destination on a UD queue", err, reactor.ErrRequest, "UD")
}

// Rule: sending a datagram allocates nothing.
func TestPacketSendAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector the runtime allocates")
	}
	a, b := mainBed.packets(t)
	to := mustResolve(t, a, b.Addr().String())
	buf := bufferOf(t, a.rt, []byte("datagram"))
	ctx := testContext(t)
	step := func() {
		f, err := a.Send(ctx, to, buf.Slice())
		if err == nil {
			_, err = f.Await(ctx)
		}
		if err != nil {
			t.Errorf("sending a datagram: %v", err)
		}
	}
	for range fewer(1000) {
		step()
	}
	if n := testing.AllocsPerRun(fewer(20_000), step); n >= 1 {
		t.Errorf("sending a datagram made %v allocations, want 0", n)
	}
}

// Rule: if ListenPacket fails, it releases its receive buffers, which were never posted. So the runtime
// can be closed.
func TestListenPacketThatFailsLeavesNothing(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		rt := d.open(t, Config{}, 0)
		p := mustListenPacket(t, rt, Options{RecvCredits: 3})
		if _, err := rt.ListenPacket(p.Addr().String(), Options{}); err == nil {
			t.Fatal("ListenPacket at an address in use succeeded, want an error")
		}
		ctx := testContext(t)
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := rt.Close(ctx); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
}

// Rule: if Send is called without a Peer, it returns an error, and the PacketConn stays usable.
func TestSendingToNoPeerIsRefused(t *testing.T) {
	p := mustListenPacket(t, mustOpen(t, Config{}), Options{})
	_, err := p.Send(testContext(t), nil, bufferOf(t, p.rt, []byte("x")).Slice())
	mistake(t, "Send without a Peer", err, verbs.ErrInvalid, "no peer")
	if err := p.Err(); err != nil {
		t.Errorf("the PacketConn has ended with %v, want no error", err)
	}
}

// slowDomain is a PD whose method CreateAH waits.
type slowDomain struct {
	verbs.PD
	entered chan struct{} // gets a value when CreateAH begins to wait
	mayEnd  chan struct{} // CreateAH waits until the test closes this channel
}

func (d slowDomain) CreateAH(a *verbs.AHAttr) (verbs.AH, error) {
	d.entered <- struct{}{}
	<-d.mayEnd
	return d.PD.CreateAH(a)
}

// Rule: if PeerOf waits in CreateAH, where the kernel looks up a hardware address, it does not hold the
// turn. So passes run, and the PacketConn can end meanwhile. If the PacketConn has ended, PeerOf closes
// the address handle that CreateAH returns.
func TestReplyToAnAbsentSourceKeepsNoTurn(t *testing.T) { onBeds(t, absentSource) }

func absentSource(t *testing.T, d bed) {
	a, b := d.packets(t)
	to := mustResolve(t, a, b.Addr().String())
	a.sendBytes(t, to, []byte("x"))
	k := b.mustRecv(t)
	slow := slowDomain{b.rt.pd, make(chan struct{}), make(chan struct{})}
	b.rt.pd = slow
	got := make(chan error, 1)
	go func() { _, err := b.PeerOf(k); got <- err }()
	<-slow.entered
	b.setCause(ErrConnClosed)
	if err := b.sh.r.Do(testContext(t), func() {
		// When a PacketConn ends, the holder of the turn calls closePeers.
		if busy, err := b.closePeers(); busy || err != nil {
			t.Errorf("closePeers returned busy %t, error %v; want false, nil", busy, err)
		}
	}); err != nil {
		t.Errorf("Do, which needs the turn, returned %v while PeerOf waited in CreateAH, want nil", err)
	}
	close(slow.mayEnd)
	if err := <-got; !errors.Is(err, ErrConnClosed) {
		t.Errorf("PeerOf returned %v, want %v", err, ErrConnClosed)
	}
	if n := b.rt.dev.Objects().AH; n != 0 {
		t.Errorf("the device has %d address handles, want 0", n)
	}
	if err := k.Release(); err != nil {
		t.Error(err)
	}
	b.rt.pd = slow.PD
}

// Rule: PeerOf of a datagram that was released meanwhile returns ErrMessage, and never the sender of the datagram that is
// in the buffer now.
func TestPeerOfWhileTheBufferIsFilledAgain(t *testing.T) {
	a := mustListenPacket(t, mainBed.open(t, Config{}, 0), Options{})
	b := mustListenPacket(t, mainBed.open(t, Config{}, 1), Options{RecvCredits: 1})
	to := mustResolve(t, a, b.Addr().String())
	a.sendBytes(t, to, []byte("first"))
	k := b.mustRecv(t)
	ended := make(chan error, 1)
	b.rt.mu.Lock() // PeerOf has looked at the datagram when it waits for this
	go func() {
		e, err := b.PeerOf(k)
		if err == nil {
			err = e.Close()
		}
		ended <- err
	}()
	eventually(t, "PeerOf to wait", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:goruntime.Stack(stacks, true)], []byte("(*Runtime).enter("))
	})
	err := k.Release()
	next := b.Recv()
	eventually(t, "another datagram", func() bool { // one that comes before the receive is posted again is lost
		a.sendBytes(t, to, []byte("next"))
		return next.Settled()
	})
	b.rt.mu.Unlock()
	must.Do(t, err)
	if err := <-ended; !errors.Is(err, ErrMessage) {
		t.Errorf("PeerOf of a released datagram: %v, want %v", err, ErrMessage)
	}
	must.Do(t, must.Get(next.Await(testContext(t)))(t).Release())
}

// Rule: PeerOf beside Release of the same datagram returns its sender or ErrMessage, although the buffer may have
// another datagram already.
func TestPeerOfBesideRelease(t *testing.T) {
	a, b := mainBed.packets(t)
	to := mustResolve(t, a, b.Addr().String())
	for i := range 300 {
		a.sendBytes(t, to, []byte{byte(i)})
		k := b.mustRecv(t)
		var released sync.WaitGroup
		released.Go(func() {
			if err := k.Release(); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
		switch from, err := b.PeerOf(k); {
		case err == nil:
			if err := from.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, ErrMessage):
			t.Errorf("PeerOf: %v, want a Peer or %v", err, ErrMessage)
		}
		released.Wait()
		if _, err := b.PeerOf(k); !errors.Is(err, ErrMessage) {
			t.Errorf("PeerOf after Release: %v, want %v", err, ErrMessage)
		}
	}
}
