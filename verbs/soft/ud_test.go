package soft

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"weak"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// testQKey is the queue key of the queue pairs in these tests.
const testQKey = 0x1234567

// newDatagrams makes a world with two UD queue pairs in RTS.
func newDatagrams(t tb, o options) *world {
	t.Helper()
	o.kind = verbs.QPTUD
	attr := o.attr
	o.attr = func(a *verbs.QPAttr) {
		a.QKey = testQKey
		if attr != nil {
			attr(a)
		}
	}
	return newWorld(t, o)
}

// handle makes an address handle, closed when the test ends.
func (e *peer) handle(gid verbs.GID) verbs.AH {
	e.w.t.Helper()
	h := must.Get(e.pd.CreateAH(&verbs.AHAttr{DGID: gid, Port: 1}))(e.w.t)
	e.w.closing(h)
	return h
}

// closing makes the world close o before its own objects.
func (w *world) closing(o verbs.Object) {
	w.before = append(w.before, o)
}

// datagram makes one request to a queue pair.
func (e *peer) datagram(id uint64, ah verbs.AH, qpn uint32, flags verbs.SendFlags, sges ...verbs.SGE) request {
	wr := e.send(id, verbs.WRSend, flags, sges...)
	wr.SetUD(ah.Handle(), qpn, testQKey)
	return wr
}

// counters returns the drop counters of the peer's device.
func (e *peer) counters() Counters {
	e.w.t.Helper()
	c := must.Get(e.w.p.Counters(e.ctx.dev.cfg.Name))(e.w.t)
	return c
}

// TestDatagramStandsBehindFortyBytes: the payload begins at byte 40, the bytes before hold the
// network header, and ByteLen counts both.
func TestDatagramStandsBehindFortyBytes(t *testing.T) {
	for _, o := range []options{{mtu: verbs.MTU4096}, {jumbo: true}, {real: true}} {
		w := newDatagrams(t, o)
		ah := w.a.handle(w.b.gid)
		for i, n := range []int{0, 1, 63, 64, 65, 1000, 4095, 4096} {
			fill(w.a.data()[:n], byte(i))
			mem.Poison(w.b.data())
			w.b.recv(uint64(i), w.b.sge(0, 17), w.b.sge(17, 5000))
			wr := w.a.datagram(uint64(i), ah, w.b.qp.Num(), verbs.SendSignaled, w.a.sge(0, n/3), w.a.sge(n/3, n-n/3))
			wr.Opcode = verbs.WRSendWithImm
			wr.SetImm(0x01020304)
			w.a.mustPost(wr)
			s := w.a.want(w.a.scq, 1)
			w.a.ok(s, uint64(i))
			if s[0].Opcode != verbs.WCSend {
				t.Fatalf("a datagram completes as SEND, got %v", s[0].Opcode)
			}
			r := w.b.want(w.b.rcq, 1)
			w.b.ok(r, uint64(i))
			want := verbs.WC{
				WRID: uint64(i), Opcode: verbs.WCRecv, ByteLen: uint32(40 + n), QPNum: w.b.qp.Num(), SrcQP: w.a.qp.Num(),
				Flags: verbs.WCWithGRH | verbs.WCWithImm, ImmData: verbs.NetworkOrder(0x01020304),
			}
			if r[0] != want {
				t.Fatalf("datagram of %d bytes received as %+v, want %+v", n, r[0], want)
			}
			if !bytes.Equal(w.b.data()[40:40+n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ behind the network header", n)
			}
			if at := mem.Poisoned(w.b.data()[40+n:]); at >= 0 {
				t.Fatalf("a datagram of %d bytes touched byte %d behind its end", n, at)
			}
		}
	}
}

// TestNetworkHeaderOfADatagram: byte for byte, IPv4 in the last twenty of the forty (rxe_resp.c),
// IPv6 in all of them.
func TestNetworkHeaderOfADatagram(t *testing.T) {
	w := newDatagrams(t, options{})
	h := must.Get(w.a.pd.CreateAH(&verbs.AHAttr{DGID: w.b.gid, Port: 1, TrafficClass: 0xb8, HopLimit: 7, FlowLabel: 0xabcde}))(t)
	w.closing(h)
	w.b.recv(1, w.b.sge(0, 100))
	w.a.mustPost(w.a.datagram(1, h, w.b.qp.Num(), 0, w.a.sge(0, 5)))
	w.b.ok(w.b.want(w.b.rcq, 1), 1)
	// 60 = 20 IP + 8 UDP + 20 BTH and DETH + 5 payload + 3 padding + 4 ICRC
	const v4 = "0000000000000000000000000000000000000000" + "45b8003c0000400007115ef70a0000010a000002"
	if got := hex.EncodeToString(w.b.data()[:40]); got != v4 {
		t.Fatalf("IPv4 header is\n%s, want\n%s", got, v4)
	}
	if checksum(w.b.data()[20:40]) != 0 {
		t.Fatal("the checksum of the IPv4 header, over itself, must be 0")
	}

	var b [grhLen]byte
	networkHeader(&b, &fabric.Packet{
		Src: verbs.GIDFromAddr(netip.MustParseAddr("fe80::1")), Dst: verbs.GIDFromAddr(netip.MustParseAddr("ff0e::2")),
		HdrLen: wire.BTHLen + wire.DETHLen, PayloadLen: 5,
		Net: fabric.NetHeader{TrafficClass: 0xb8, HopLimit: 7, FlowLabel: 0xabcde},
	})
	const v6 = "6b8abcde00281107" + "fe800000000000000000000000000001" + "ff0e0000000000000000000000000002"
	if got := hex.EncodeToString(b[:]); got != v6 {
		t.Fatalf("IPv6 header is\n%s, want\n%s", got, v6)
	}
}

// Rule: the network header of a datagram from another process names the addresses of its path, not those of the fabric.
func TestTheNetworkHeaderHasThePath(t *testing.T) {
	gid := func(a string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(a)) }
	path := wire.Path{Peer: gid("10.0.0.1"), Local: gid("10.0.0.2"), PeerPort: 5, LocalPort: 6}
	var b [grhLen]byte
	networkHeader(&b, &fabric.Packet{Src: gid("127.0.0.1"), Dst: gid("127.0.0.1"), Far: &path})
	from, err := verbs.InitAHFromGRH(b[:], 1, 0)
	must.Do(t, err)
	to, _, err := verbs.GRHDest(b[:])
	if must.Do(t, err); from.DGID != path.Peer || to != path.Local {
		t.Errorf("the header is from %v to %v, want %v to %v", from.DGID, to, path.Peer, path.Local)
	}
}

// TestDatagramsThatAreDropped: the send completes with success, nothing is received, and the
// receive stays for the next datagram.
func TestDatagramsThatAreDropped(t *testing.T) {
	nobody := verbs.GIDFromAddr(netip.MustParseAddr("10.9.9.9"))
	for _, c := range []struct {
		name string
		make func(w *world) request
		want Counters
	}{
		{"wrong queue key", func(w *world) request {
			wr := w.a.datagram(1, w.a.handle(w.b.gid), w.b.qp.Num(), verbs.SendSignaled, w.a.sge(0, 8))
			wr.SetUD(w.a.handle(w.b.gid).Handle(), w.b.qp.Num(), testQKey+1)
			return wr
		}, Counters{QKeyViolations: 1}},
		{"nobody at the address", func(w *world) request {
			return w.a.datagram(1, w.a.handle(nobody), w.b.qp.Num(), verbs.SendSignaled, w.a.sge(0, 8))
		}, Counters{}},
		{"no such queue pair", func(w *world) request {
			return w.a.datagram(1, w.a.handle(w.b.gid), w.b.qp.Num()+1, verbs.SendSignaled, w.a.sge(0, 8))
		}, Counters{NoQueuePair: 1}},
		{"too long for the receive", func(w *world) request {
			return w.a.datagram(1, w.a.handle(w.b.gid), w.b.qp.Num(), verbs.SendSignaled, w.a.sge(0, 61))
		}, Counters{TooLong: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newDatagrams(t, options{})
			w.b.recv(7, w.b.sge(0, 100))
			w.a.mustPost(c.make(w))
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			if got := w.b.poll(w.b.rcq); len(got) > 0 {
				t.Fatalf("it must be dropped, the receiver got %+v", got)
			}
			if got := w.b.counters(); got != c.want {
				t.Fatalf("counted as %+v, want %+v", got, c.want)
			}
			w.a.mustPost(w.a.datagram(2, w.a.handle(w.b.gid), w.b.qp.Num(), 0, w.a.sge(0, 60)))
			w.b.ok(w.b.want(w.b.rcq, 1), 7)
		})
	}
	t.Run("no receive", func(t *testing.T) {
		w := newDatagrams(t, options{})
		w.a.mustPost(w.a.datagram(1, w.a.handle(w.b.gid), w.b.qp.Num(), verbs.SendSignaled, w.a.sge(0, 8)))
		w.a.ok(w.a.want(w.a.scq, 1), 1)
		w.b.recv(7, w.b.sge(0, 100))
		w.settle()
		if got := w.b.poll(w.b.rcq); len(got) > 0 || w.b.counters().NoReceive != 1 {
			t.Fatalf("without a receive it is dropped, not kept: %+v", got)
		}
	})
}

// TestQKeyOfTheQueuePair: a request's key with the top bit set selects the key of the sending
// queue pair.
func TestQKeyOfTheQueuePair(t *testing.T) {
	const privileged = 0x80001234
	w := newDatagrams(t, options{attr: func(a *verbs.QPAttr) { a.QKey = privileged }})
	ah := w.a.handle(w.b.gid)
	w.b.recv(1, w.b.sge(0, 100))
	for i, key := range []uint32{privileged, 1 << 31, 0xffffffff} {
		wr := w.a.datagram(1, ah, w.b.qp.Num(), 0, w.a.sge(0, 8))
		wr.SetUD(ah.Handle(), w.b.qp.Num(), key)
		w.a.mustPost(wr)
		w.b.ok(w.b.want(w.b.rcq, 1), 1)
		w.b.recv(1, w.b.sge(0, 100))
		must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, QKey: privileged}, verbs.QPMState|verbs.QPMQKey))
		if a, err := w.a.qp.Query(); err != nil || a.QKey != privileged {
			t.Fatalf("round %d: query tells queue key 0x%x, %v", i, a.QKey, err)
		}
	}
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, QKey: 5}, verbs.QPMState|verbs.QPMQKey))
	wr := w.a.datagram(1, ah, w.b.qp.Num(), 0, w.a.sge(0, 8))
	wr.SetUD(ah.Handle(), w.b.qp.Num(), privileged)
	w.a.mustPost(wr)
	w.settle()
	if got := w.b.counters().QKeyViolations; got != 1 {
		t.Fatalf("a key with the top bit set is not sent itself: %d violations, want 1", got)
	}
}

// TestDatagramToOneself: to the sending queue pair, and to a closed one of the same device.
func TestDatagramToOneself(t *testing.T) {
	w := newDatagrams(t, options{})
	ah := w.a.handle(w.a.gid)
	fill(w.a.data()[:8], 3)
	w.a.recv(1, w.a.sge(100, 48))
	w.a.mustPost(w.a.datagram(1, ah, w.a.qp.Num(), verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.a.ok(w.a.want(w.a.rcq, 1), 1)
	if !bytes.Equal(w.a.data()[140:148], w.a.data()[:8]) {
		t.Fatal("a datagram to oneself brought other bytes")
	}
	q := w.a.newQP(w.a.qp.granted)
	number := q.Num()
	must.Do(t, q.Close())
	w.a.mustPost(w.a.datagram(2, ah, number, verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
}

// TestAddressHandles: invalid attributes are refused, handles are counted, and their domain
// cannot be closed before them.
func TestAddressHandles(t *testing.T) {
	w := newDatagrams(t, options{})
	ok := verbs.AHAttr{DGID: w.b.gid, Port: 1, SL: 15, FlowLabel: 1<<20 - 1, HopLimit: 255, TrafficClass: 255}
	for _, c := range []struct {
		name string
		set  func(*verbs.AHAttr)
	}{
		{"port", func(a *verbs.AHAttr) { a.Port = 2 }},
		{"no port", func(a *verbs.AHAttr) { a.Port = 0 }},
		{"source address", func(a *verbs.AHAttr) { a.SGIDIndex = 1 }},
		{"no destination", func(a *verbs.AHAttr) { a.DGID = verbs.GID{} }},
		{"any IPv4", func(a *verbs.AHAttr) { a.DGID = verbs.GIDFromAddr(netip.IPv4Unspecified()) }},
		{"service level", func(a *verbs.AHAttr) { a.SL = 16 }},
		{"flow label", func(a *verbs.AHAttr) { a.FlowLabel = 1 << 20 }},
	} {
		a := ok
		c.set(&a)
		if _, err := w.a.pd.CreateAH(&a); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", c.name, err)
		}
	}
	h := must.Get(w.a.pd.CreateAH(&ok))(t)
	if n := w.a.ctx.Objects().AH; n != 1 {
		t.Fatalf("%d address handles alive, want 1", n)
	}
	pd := must.Get(w.a.ctx.AllocPD())(t)
	other := must.Get(pd.CreateAH(&ok))(t)
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing a domain with an address handle: %v, want ErrBusy", err)
	}
	stale := h.Handle()
	for _, o := range []verbs.Object{h, h, other, pd} {
		must.Do(t, o.Close())
	}
	again := must.Get(w.a.pd.CreateAH(&ok))(t)
	defer again.Close()
	if again.Handle() == stale || again.Handle() == 0 {
		t.Fatalf("handle 0x%x: a handle names one object only, and 0 none", again.Handle())
	}
}

// TestClosedHandlesLetTheLinkForget: the fabric forgets the destinations of address handles and
// queue pairs some time after these are closed; otherwise new destinations would fill its tables.
func TestClosedHandlesLetTheLinkForget(t *testing.T) {
	w := newWorld(t, options{kind: verbs.QPTUC})
	handle := func(a netip.Addr) *addressHandle {
		h := must.Get(w.a.pd.CreateAH(&verbs.AHAttr{Port: 1, DGID: verbs.GIDFromAddr(a)}))(t)
		return h.(*addressHandle)
	}
	nobody := netip.MustParseAddr("10.9.9.9")
	a, g := handle(nobody), handle(netip.MustParseAddr("239.9.9.9"))
	route, group := weak.Make(a.route), weak.Make(g.group)
	q := w.a.qp
	must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	must.Do(t, q.Modify(&verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPN: 5, AH: verbs.AHAttr{DGID: verbs.GIDFromAddr(nobody), Port: 1},
	}, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN))
	others := func() {
		for i := range 500 {
			must.Do(t, handle(netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)})).Close())
		}
		runtime.GC()
	}
	must.Do(t, a.Close())
	must.Do(t, g.Close())
	others()
	if group.Value() != nil {
		t.Error("the group of a closed address handle is remembered")
	}
	if route.Value() == nil {
		t.Error("the route of a connected queue pair was forgotten with a handle's")
	}
	must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	others()
	if route.Value() != nil {
		t.Error("the route that nobody uses any more is remembered")
	}
}
