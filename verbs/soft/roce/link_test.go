package roce

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// near and far are the ends of a link under test.
var near, far = netip.MustParseAddrPort("10.1.0.1:4791"), netip.MustParseAddrPort("10.1.0.2:4791")

// fakeSocket is a socket without a network.
type fakeSocket struct {
	local   netip.AddrPort
	arrived []arrival
	sent    [][]byte
	tos     []uint8 // of sent
	room    int     // datagrams that Send accepts; -1: any number
	refuse  error   // of the next datagram sent
	closed  bool
	buffer  udp.Buffer
	offered []int // the buffers of each Recv
}

type arrival struct {
	from netip.AddrPort
	b    []byte
	each int // of joined datagrams
}

func (s *fakeSocket) Local() netip.AddrPort { return s.local }
func (s *fakeSocket) FD() int               { return -1 }
func (s *fakeSocket) Notify(func())         {}
func (s *fakeSocket) Close() error          { s.closed = true; return nil }

func (s *fakeSocket) Refused([]byte) (to netip.AddrPort, n int, ok bool) { return to, 0, false }

func (s *fakeSocket) Send(ms []udp.Out) (n int, err error) {
	for _, m := range ms {
		if s.refuse != nil {
			err, s.refuse = s.refuse, nil
			return n, err
		}
		if s.room == 0 {
			return n, nil
		}
		s.room--
		s.sent, s.tos = append(s.sent, bytes.Clone(m.Data)), append(s.tos, m.TOS)
		n++
	}
	return n, nil
}

func (s *fakeSocket) Recv(ms []udp.In) (n int, err error) {
	s.offered = append(s.offered, len(ms))
	for n < min(len(ms), len(s.arrived)) {
		a := s.arrived[n]
		ms[n].From, ms[n].N = a.from, copy(ms[n].Buf, a.b)
		ms[n].Cut, ms[n].Each = ms[n].N < len(a.b), a.each
		n++
	}
	s.arrived = s.arrived[n:]
	return n, nil
}

func (s *fakeSocket) Buffer() udp.Buffer { return s.buffer }

// device is the endpoint whose uplink is under test. It keeps what arrives.
type device struct {
	port *fabric.Port
	got  []*fabric.Packet
}

func (d *device) Progress(time.Duration) (time.Duration, bool) {
	for k := d.port.Take(); k != nil; k = d.port.Take() {
		d.got = append(d.got, k)
	}
	return 0, false
}

// rig is a device with a link in virtual time.
type rig struct {
	*device
	fab  *fabric.Fabric
	sock *fakeSocket
	link *Link
	end  *End
}

func newRig(t must.T) *rig { return newRigOf(t, near, false) }

// newRigOf makes a rig at an address, whose link is one between processes, or one in the format of RoCEv2.
func newRigOf(t must.T, at netip.AddrPort, peers bool) *rig {
	r := &rig{device: new(device), fab: fabric.New(fabric.Config{Virtual: true}), sock: &fakeSocket{local: at, room: -1}}
	r.port = must.Get(r.fab.Attach(gidOf(at), "device", r.device))(t)
	r.link = newLink("link", peers, func() {})
	r.link.attach(r.port)
	r.end = r.link.newEnd(r.sock, false)
	r.link.addLocked(r.end)
	return r
}

// steps runs everything until it is quiet.
func (r *rig) steps() {
	for r.fab.Step() {
	}
}

// looks has the link look at its socket.
func (r *rig) looks() {
	r.end.ready.Store(true)
	r.link.up.Kick()
	r.steps()
}

// send has the device send a packet.
func (r *rig) send(h *wire.Header, holder fabric.Holder, payload ...[]byte) {
	r.port.Exclusive(func() {
		k := r.port.Get()
		k.SetHeader(h)
		for _, p := range payload {
			k.AddRef(p)
		}
		k.Holder = holder
		r.port.Send(wire.To(gidOf(far)), k)
	})
	r.steps()
}

// datagram is a datagram from far to near.
func datagram(h *wire.Header, payload []byte) []byte {
	h.PadCount = wire.PadLen(len(payload))
	b := append(h.Append(nil), payload...)
	return seal(append(b, make([]byte, int(h.PadCount)+ICRCLen)...))
}

// seal writes the ICRC of a datagram from far to near.
func seal(b []byte) []byte {
	end := len(b) - ICRCLen
	c := Cover{Src: far, Dst: near}
	putICRC(b[end:], c.Sum(b))
	return b
}

// Rule: a packet leaves with its own type of service, whichever packet had its place in the batch before.
func TestPacketsHaveTheirTypeOfService(t *testing.T) {
	r := newRig(t)
	want := []uint8{46 << 2, 0, 10 << 2}
	for _, tos := range want {
		r.port.Exclusive(func() {
			k := r.port.Get()
			k.SetHeader(&wire.Header{Opcode: wire.RCAcknowledge, PKey: wire.DefaultPKey})
			k.Net.TrafficClass = tos
			r.port.Send(wire.To(gidOf(far)), k)
		})
		r.steps()
	}
	if !slices.Equal(r.sock.tos, want) {
		t.Errorf("the datagrams have the types of service %v, want %v", r.sock.tos, want)
	}
}

// Rule: a packet that the device sends leaves as a datagram that another link turns into the same
// packet, whatever its headers and the parts of its payload.
func TestPacketsCrossTwoLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newRig(t), newRigOf(t, far, false)
		h := wire.Header{
			Opcode: rapid.SampledFrom([]wire.Opcode{wire.RCSendOnly, wire.RCWriteMiddle, wire.UDSendOnlyImm, wire.RCWriteOnly}).Draw(t, "opcode"),
			DestQP: rapid.Uint32Range(0, 1<<24-1).Draw(t, "qp"), PSN: wire.NewPSN(rapid.Uint32().Draw(t, "psn")), PKey: wire.DefaultPKey, FECN: true,
		}
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 200), 0, 6).Draw(t, "payload")
		whole := bytes.Join(parts, nil)
		h.PadCount = wire.PadLen(len(whole))
		a.send(&h, nil, parts...)
		if len(a.sock.sent) != 1 {
			t.Fatalf("%d datagrams were sent, want 1", len(a.sock.sent))
		}
		b.sock.arrived = []arrival{{from: near, b: a.sock.sent[0]}}
		b.looks()
		if len(b.got) != 1 {
			t.Fatalf("%d packets arrived, want 1: %+v", len(b.got), b.link.Stats())
		}
		k := b.got[0]
		if !bytes.Equal(k.Header(), h.Append(nil)) || !bytes.Equal(bytes.Join(k.Payload, nil), whole) || k.PayloadLen != len(whole) || k.Src != gidOf(near) {
			t.Errorf("a packet arrived from %v with header %x and payload %x", k.Src, k.Header(), bytes.Join(k.Payload, nil))
		}
	})
}

// Rule: a datagram that is short, cut, unknown, badly padded or damaged is dropped and counted.
func TestDamagedDatagramsAreDropped(t *testing.T) {
	good := func() []byte { return datagram(&wire.Header{Opcode: wire.RCSendOnly, DestQP: 2}, []byte("payload")) }
	for what, x := range map[string]struct {
		b    []byte
		want Stats
	}{
		"whole":              {good(), Stats{Received: 1}},
		"empty":              {nil, Stats{Received: 1, Refused: 1}},
		"a header alone":     {good()[:wire.BTHLen+ICRCLen-1], Stats{Received: 1, Refused: 1}},
		"longer than buffer": {make([]byte, bufferLen+1), Stats{Received: 1, Refused: 1}},
		"an unknown opcode":  {func() []byte { b := good(); b[0] = 0x7f; return seal(b) }(), Stats{Received: 1, Refused: 1}},
		"without its RETH":   {func() []byte { b := good(); b[0] = byte(wire.RCWriteOnly); return seal(b) }(), Stats{Received: 1, Refused: 1}},
		"more padding than bytes": {
			func() []byte { b := datagram(&wire.Header{Opcode: wire.RCSendOnly}, nil); b[1] |= 0x30; return seal(b) }(),
			Stats{Received: 1, Refused: 1},
		},
		"a wrong ICRC":      {func() []byte { b := good(); b[len(b)-1] ^= 1; return b }(), Stats{Received: 1, BadICRC: 1}},
		"a changed payload": {func() []byte { b := good(); b[wire.BTHLen] ^= 1; return b }(), Stats{Received: 1, BadICRC: 1}},
	} {
		r := newRig(t)
		r.sock.arrived = []arrival{{from: far, b: x.b}}
		r.looks()
		if got := r.link.Stats(); got != x.want {
			t.Errorf("%s: %+v, want %+v", what, got, x.want)
		}
		if n := len(r.got); (n == 1) != (what == "whole") {
			t.Errorf("%s: %d packets arrived", what, n)
		}
	}
}

// lent is a guard that counts.
type lent struct{ inside, done, dead int }

func (g *lent) PacketDone(*fabric.Packet) { g.done++ }
func (g *lent) Enter() bool {
	if g.dead == 0 {
		g.inside++
	}
	return g.dead == 0
}
func (g *lent) Leave() { g.inside-- }

// Rule: the link reads the memory of a packet once, under its guard. What waits for the send buffer is a copy; a
// packet whose memory was taken back before is not sent.
func TestMemoryIsReadOnceUnderItsGuard(t *testing.T) {
	h := &wire.Header{Opcode: wire.RCSendOnly}
	payload := []byte("12345678")
	r, g := newRig(t), new(lent)
	r.send(h, g, payload)
	if len(r.sock.sent) != 1 || g.inside != 0 || g.done != 1 {
		t.Errorf("%d sent, inside %d times, done %d times; want 1, 0, 1", len(r.sock.sent), g.inside, g.done)
	}
	r, g = newRig(t), new(lent)
	r.sock.room = 0
	r.send(h, g, payload)
	if len(r.sock.sent) != 0 || g.inside != 0 || g.done != 1 {
		t.Errorf("with a full send buffer: %d sent, inside %d times, done %d times; want 0, 0, 1", len(r.sock.sent), g.inside, g.done)
	}
	copy(payload, "changed!")
	g.dead = 1
	r.sock.room = -1
	r.fab.AdvanceTo(sendAgain)
	r.steps()
	if len(r.sock.sent) != 1 || !bytes.Contains(r.sock.sent[0], []byte("12345678")) {
		t.Errorf("after the send buffer had room: sent %q, want the payload as it was", r.sock.sent)
	}
	r, g = newRig(t), &lent{dead: 1}
	r.send(h, g, payload)
	if len(r.sock.sent) != 0 || g.done != 1 {
		t.Errorf("memory that was taken back: %d sent, done %d times; want 0, 1", len(r.sock.sent), g.done)
	}
}

// Rule: a batch that is not full has room for any datagram, and leaves the others whole.
func TestABatchHasRoomForAnyDatagram(t *testing.T) {
	var b txBatch
	rapid.Check(t, func(t *rapid.T) {
		var all [][]byte
		for b.drop(); !b.full(); b.n++ {
			d := b.take(rapid.IntRange(1, batchLen).Draw(t, "length"))
			copy(d, bytes.Repeat([]byte{byte(b.n)}, len(d)))
			all = append(all, d)
		}
		for i, d := range all {
			if j := slices.IndexFunc(d, func(c byte) bool { return c != byte(i) }); j >= 0 {
				t.Fatalf("datagram %d of %d was overwritten at %d", i, len(all), j)
			}
		}
	})
}

// Rule: a packet that UDP does not carry is counted and not sent, and its holder is told.
func TestATooLongPacketIsNotSent(t *testing.T) {
	r, g := newRig(t), new(lent)
	r.send(&wire.Header{Opcode: wire.RCSendOnly}, g, make([]byte, batchLen))
	if s := r.link.Stats(); len(r.sock.sent) != 0 || s.TooLong != 1 || s.Unsent != 1 || g.done != 1 || g.inside != 0 {
		t.Errorf("%d sent, %+v, done %d times", len(r.sock.sent), s, g.done)
	}
}

// Rule: a polled socket is read with one buffer while datagrams come alone, and with twice as many when a full call
// follows a full call. A call that found fewer datagrams than it has buffers sets the number back.
func TestACallHasAsManyBuffersAsDatagramsAreLikely(t *testing.T) {
	r := newRigOf(t, near, true)
	b := datagram(&wire.Header{Opcode: wire.RCSendOnly}, nil)
	for _, c := range []struct{ arrived, buffers int }{
		{0, 1}, {1, 1}, {0, 1}, {1, 1}, {0, 1}, // an exchange of single datagrams
		{1, 1}, {1, 1}, {2, 2}, {3, 4}, // a stream
		{1, 3}, {1, 1}, {1, 1}, {0, 2}, {1, 2}, {0, 1},
	} {
		r.sock.arrived, r.sock.offered = slices.Repeat([]arrival{{far, b, 0}}, c.arrived), nil
		r.link.up.Exclusive(func() { r.link.receive(r.end, true) })
		if got := r.sock.offered[0]; got != c.buffers {
			t.Fatalf("a call had %d buffers, want %d: %+v", got, c.buffers, c)
		}
	}
}

// Rule: a datagram that the system refuses is dropped and counted, and those behind it are sent.
func TestRefusedDatagramDelaysNoOther(t *testing.T) {
	for _, x := range []struct {
		err     error
		tooLong uint64
	}{{udp.ErrTooLong, 1}, {errors.New("no route"), 0}} {
		r := newRig(t)
		r.sock.refuse = x.err
		r.port.Exclusive(func() {
			for range 3 {
				k := r.port.Get()
				k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly})
				r.port.Send(wire.To(gidOf(far)), k)
			}
		})
		r.steps()
		if s, want := r.link.Stats(), (Stats{Sent: 2, Unsent: 1, TooLong: x.tooLong}); s != want || len(r.sock.sent) != 2 {
			t.Errorf("%v: %+v, want %+v", x.err, s, want)
		}
	}
}

// Rule: packets that the device keeps use a bounded number of buffers; when all are in use the socket
// keeps its datagrams, and returned buffers have the link run.
func TestBuffersAreBounded(t *testing.T) {
	r := newRig(t)
	b := datagram(&wire.Header{Opcode: wire.RCSendOnly}, make([]byte, copiedLen+1))
	const behind, maxBuffers = 100, bufferBytes / bufferLen
	r.sock.arrived = slices.Repeat([]arrival{{from: far, b: b}}, maxBuffers+behind)
	r.looks()
	if len(r.got) != maxBuffers || len(r.sock.arrived) != behind {
		t.Fatalf("the device has %d packets and the socket %d, want %d and %d", len(r.got), len(r.sock.arrived), maxBuffers, behind)
	}
	for _, k := range r.got[:behind] {
		k.Release()
	}
	r.got = r.got[behind:]
	r.steps()
	if len(r.got) != maxBuffers || len(r.sock.arrived) != 0 {
		t.Errorf("after buffers were returned the device has %d packets and the socket %d, want %d and 0", len(r.got), len(r.sock.arrived), maxBuffers)
	}
	if n := r.link.rx.made; n != maxBuffers {
		t.Errorf("%d buffers were made, want %d", n, maxBuffers)
	}
}

// Rule: joined datagrams are packets in their order. A damaged one does not affect the others, and the buffer
// is used again when the last of its packets is released.
func TestJoinedDatagrams(t *testing.T) {
	const behind, maxBuffers, each, damaged = 10, bufferBytes / udp.MaxJoined, 5, 2
	r := newRigOf(t, near, true)
	var joined []byte
	var size int
	for i := range each {
		b := datagram(&wire.Header{Opcode: wire.RCSendOnly, PSN: wire.NewPSN(uint32(i))}, make([]byte, 2*copiedLen-i/(each-1)*4))
		var none Cover
		end := len(b) - ICRCLen
		putICRC(b[end:], none.Sum(b))
		if i == damaged {
			b[end]++
		}
		if i == 0 {
			size = len(b)
		}
		joined = append(joined, b...)
	}
	r.sock.arrived = slices.Repeat([]arrival{{from: far, b: joined, each: size}}, maxBuffers+behind)
	r.looks()
	if s := r.link.Stats(); s.Received != each*maxBuffers || s.BadICRC != maxBuffers || len(r.sock.arrived) != behind {
		t.Fatalf("%+v, and the socket has %d; want %d received, %d damaged, and %d", s, len(r.sock.arrived), each*maxBuffers, maxBuffers, behind)
	}
	want := slices.Repeat([]uint32{0, 1, 3, 4}, maxBuffers+behind)
	psns := func(ks []*fabric.Packet) (all []uint32) {
		var h wire.Header
		for _, k := range ks {
			must.Get(wire.Parse(k.Header(), &h))(t)
			all = append(all, uint32(h.PSN))
		}
		return all
	}
	if got := psns(r.got); !slices.Equal(got, want[:len(want)-4*behind]) {
		t.Errorf("the packets arrived are %v", got)
	}
	all := r.got
	for i, k := range all[:4*behind] {
		if i%4 != 3 {
			k.Release()
		}
	}
	r.looks()
	if len(r.sock.arrived) != behind {
		t.Error("a buffer was used again before its last packet was released")
	}
	for i, k := range all[:4*behind] {
		if i%4 == 3 {
			k.Release()
		}
	}
	r.steps()
	if got := psns(r.got[4*behind:]); !slices.Equal(got, want[4*behind:]) || r.link.rx.made != maxBuffers {
		t.Errorf("%d packets arrived, and %d buffers were made; want %d and %d", len(got)+4*behind, r.link.rx.made, len(want), maxBuffers)
	}
}

// Rule: after Close the device's packets are lost, and nothing more arrives.
func TestClosedLink(t *testing.T) {
	r := newRig(t)
	must.Do(t, r.link.Close())
	must.Do(t, r.link.Close())
	r.send(&wire.Header{Opcode: wire.RCSendOnly}, nil)
	if !r.sock.closed || len(r.sock.sent) != 0 {
		t.Errorf("closed %v, %d datagrams were sent; want true, 0", r.sock.closed, len(r.sock.sent))
	}
}

// Rule: whatever arrives, nothing but whole packets with a right ICRC reaches the device.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{}, true, int16(0))
	one := datagram(&wire.Header{Opcode: wire.RCWriteOnly, Length: 5}, []byte("hello"))
	f.Add(one, false, int16(0))
	f.Add(datagram(&wire.Header{Opcode: wire.UDSendOnly, PadCount: 0}, make([]byte, 256)), true, int16(0))
	f.Add(slices.Repeat(one, 3), false, int16(len(one)))
	rigs := map[bool]*rig{false: newRig(f), true: newRigOf(f, near, true)}
	f.Fuzz(func(t *testing.T, b []byte, right bool, each int16) {
		if right && len(b) >= wire.BTHLen+ICRCLen {
			b = seal(slices.Clone(b))
		}
		r, want := rigs[each != 0], uint64(1)
		if n := int(each); n > 0 {
			want = uint64(max(1, (len(b)+n-1)/n))
		}
		before := r.link.Stats()
		r.sock.arrived = []arrival{{from: far, b: b, each: int(each)}}
		r.looks()
		s := r.link.Stats()
		if s.Received-before.Received != want || uint64(len(r.got))+s.Refused-before.Refused+s.BadICRC-before.BadICRC != want {
			t.Fatalf("%d packets, %+v after %+v: want one outcome for each of %d", len(r.got), s, before, want)
		}
		for _, k := range r.got {
			var h wire.Header
			if n, err := wire.Parse(k.Header(), &h); err != nil || n != k.HdrLen || k.Src != gidOf(far) {
				t.Errorf("a packet with %d bytes of header arrived: %v", k.HdrLen, err)
			}
			if whole := k.HdrLen + k.PayloadLen + int(h.PadCount) + ICRCLen; each <= 0 && whole != len(b) || whole > len(b) {
				t.Errorf("a packet of %d bytes came of a datagram of %d", whole, len(b))
			}
			k.Release()
		}
		r.got = r.got[:0]
		for _, m := range r.link.rx.buffers {
			if m != nil && m.users.Load() != 0 {
				t.Fatalf("a buffer without packets has %d users", m.users.Load())
			}
		}
	})
}

// Rule: what the sockets' receive buffers dropped is counted, also after a socket is closed; the smallest
// buffer is told.
func TestDroppedDatagramsAreCounted(t *testing.T) {
	r := newRig(t)
	defer func() { must.Do(t, r.link.Close()) }()
	must.Do(t, r.link.watching())
	r.sock.buffer = udp.Buffer{Size: 1000, Dropped: 3}
	r.link.addLocked(r.link.newEnd(&fakeSocket{local: far, buffer: udp.Buffer{Size: 2000, Dropped: 4}}, false))
	if got := r.link.Stats(); got.Buffer != 1000 || got.Dropped != 7 {
		t.Errorf("%+v, want a buffer of 1000 bytes and 7 dropped", got)
	}
	r.end.Close()
	if got := r.link.Stats(); got.Buffer != 2000 || got.Dropped != 7 {
		t.Errorf("with one socket closed %+v, want a buffer of 2000 bytes and 7 dropped", got)
	}
}
