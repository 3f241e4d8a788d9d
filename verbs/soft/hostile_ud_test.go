package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The memory of the device in the hostile tests: the region open to the peer, the receive
// buffers, and the rest, which must stay unchanged.
const (
	hostileOpen    = 8192 // from 0 on
	hostileRecvAt  = 8192
	hostileRecvLen = 6000 // more than any packet may carry
	hostileRecvs   = 2
)

// hostile is a world of one device with a UC and a UD queue pair, and a rogue at the address that
// the UC queue pair is connected to.
type hostile struct {
	w      *world
	uc, ud *queuePair
	open   verbs.MR
	rogue  *rogue
}

func newHostile(t *testing.T) *hostile {
	fab := fabric.New(fabric.Config{Virtual: true})
	p := must.Get(New(Config{Fabric: fab, Devices: []DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}}}))(t)
	w := &world{t: t, fab: fab, p: p}
	w.a = w.newPeer("a", options{
		kind: verbs.QPTUD, cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
		cqe: 256, memory: 1 << 16, access: allAccess,
	})
	h := &hostile{w: w, ud: w.a.qp, rogue: &rogue{to: w.a.gid}}
	gid := verbs.GIDFromAddr(rogueAddr)
	h.rogue.port = must.Get(fab.Attach(gid, "rogue", h.rogue))(t)
	peer := &peer{gid: gid, qp: &queuePair{number: 7}}
	attr := verbs.QPAttr{PathMTU: verbs.MTU1024, RQPSN: 100, SQPSN: 100, AccessFlags: allAccess, Port: 1, QKey: testQKey}
	w.a.toRTS(attr, peer)
	must.Do(t, h.ud.AttachMcast(testGroup, 0))
	q := must.Get(w.a.pd.CreateQP(&verbs.QPInitAttr{SendCQ: w.a.scq, RecvCQ: w.a.rcq, Type: verbs.QPTUC, Cap: h.ud.granted}))(t)
	h.uc = q.(*queuePair)
	w.a.qp = h.uc
	w.a.toRTS(attr, peer)
	mem.Poison(w.a.data())
	h.open = must.Get(w.a.pd.RegMR(w.a.at(0), hostileOpen, w.a.at(0), allAccess))(t)
	for i := range hostileRecvs {
		w.a.recvOn(h.uc, uint64(100+i), w.a.sge(hostileRecvAt+i*hostileRecvLen, hostileRecvLen))
		w.a.recvOn(h.ud, uint64(200+i), w.a.sge(hostileRecvAt+(hostileRecvs+i)*hostileRecvLen, hostileRecvLen))
	}
	return h
}

// throw sends the packets to the device.
func (h *hostile) throw(send ...func(k *fabric.Packet)) {
	h.rogue.send = send
	h.rogue.port.Kick()
	h.w.settle()
}

// finish checks the conditions that hold for any input, and closes everything.
func (h *hostile) finish(t *testing.T) {
	t.Helper()
	a := h.w.a
	for _, q := range []*queuePair{h.uc, h.ud} {
		if s := q.current(); s != verbs.QPSRTS {
			t.Fatalf("an unreliable packet moved %v to %v", q, s)
		}
		must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	}
	h.w.settle()
	seen := map[uint64]int{}
	for _, c := range append(a.poll(a.scq), a.poll(a.rcq)...) {
		seen[c.WRID]++
		if c.Status == verbs.WCSuccess && c.ByteLen > hostileRecvLen && c.Opcode == verbs.WCRecv {
			t.Fatalf("a receive of %d bytes tells of %d", hostileRecvLen, c.ByteLen)
		}
	}
	for _, id := range []uint64{100, 101, 200, 201} {
		if seen[id] != 1 {
			t.Fatalf("receive %d completed %d times", id, seen[id])
		}
	}
	if at := mem.Poisoned(a.data()[hostileRecvAt+2*hostileRecvs*hostileRecvLen:]); at >= 0 {
		t.Fatalf("byte %d behind every buffer was written", at)
	}
	a.events()
	for _, obj := range []verbs.Object{h.uc, h.ud, h.open, a.mr, a.scq, a.rcq, a.pd, a.ctx} {
		must.Do(t, obj.Close())
	}
	h.rogue.port.Detach()
	for _, m := range []*mem.Arena{a.arena, a.wrs, a.wcs} {
		must.Do(t, m.Unmap())
	}
}

// field is one way in which a packet may be wrong.
type field struct {
	name string
	set  func(x *hostile, h *wire.Header, k *fabric.Packet)
}

// wrongFields returns the fields of a packet with opcode o.
func wrongFields(o wire.Opcode) []field {
	fs := []field{
		{"partition", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.PKey = 1 }},
		{"queue pair", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.DestQP ^= 1 << 16 }},
		{"queue pair of the other type", func(x *hostile, h *wire.Header, _ *fabric.Packet) { h.DestQP = x.uc.Num() + x.ud.Num() - h.DestQP }},
		{"queue pair 0", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.DestQP = 0 }},
		{"queue pair 1", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.DestQP = gsiQP }},
		{"multicast number", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.DestQP = verbs.McastQPN }},
		{"payload too long", func(_ *hostile, _ *wire.Header, k *fabric.Packet) { k.AddCopy(make([]byte, 5000)) }},
	}
	if o.Transport() == wire.TransportUD {
		return append(fs,
			field{"queue key", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.QKey++ }},
			field{"group and another number", func(_ *hostile, _ *wire.Header, k *fabric.Packet) { k.Dst = testGroup }})
	}
	if o.Ext()&wire.ExtRETH != 0 {
		fs = append(fs,
			field{"key", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.RKey++ }},
			field{"address below", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.VA-- }},
			field{"address far", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.VA = ^uint64(0) - 3 }},
			field{"length beyond", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.Length = hostileOpen + 1 }},
			field{"length huge", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.Length = ^uint32(0) }})
		if o.Ends() { // its length is in it twice
			fs = append(fs, field{"length short", func(_ *hostile, h *wire.Header, _ *fabric.Packet) { h.Length-- }})
		}
	}
	return fs
}

// packet makes a valid packet, of 100 bytes or of a First's 1024; f may make it invalid.
func (h *hostile) packet(o wire.Opcode, f *field) func(k *fabric.Packet) {
	return func(k *fabric.Packet) {
		n, total := 100, uint32(100)
		if o.Starts() && !o.Ends() {
			n, total = 1024, 2000
		}
		p := wire.Header{
			Opcode: o, PKey: wire.DefaultPKey, DestQP: h.uc.Num(), PSN: 100, QKey: testQKey, SrcQP: 7,
			VA: h.w.a.at(0), RKey: h.open.RKey(), Length: total,
		}
		if o.Transport() == wire.TransportUD {
			p.DestQP = h.ud.Num()
		}
		if f != nil {
			f.set(h, &p, k)
		}
		k.AddCopy(make([]byte, n))
		k.SetHeader(&p)
	}
}

// TestEveryFieldWrong: every UC and UD packet that may begin a message, with each field wrong in
// turn, is dropped: it writes nothing and completes nothing. The valid one is accepted, also
// after the wrong one.
func TestEveryFieldWrong(t *testing.T) {
	for _, o := range []wire.Opcode{
		wire.UCSendFirst, wire.UCSendOnly, wire.UCSendOnlyImm, wire.UCWriteFirst, wire.UCWriteOnly, wire.UCWriteOnlyImm,
		wire.UDSendOnly, wire.UDSendOnlyImm,
	} {
		for _, f := range wrongFields(o) {
			t.Run(o.String()+"/"+f.name, func(t *testing.T) {
				x := newHostile(t)
				look := func() (completed int, wrote bool) {
					return len(x.w.a.poll(x.w.a.rcq)), mem.Poisoned(x.w.a.data()) >= 0
				}
				x.throw(x.packet(o, &f))
				if completed, wrote := look(); completed > 0 || wrote {
					t.Fatalf("wrong packet: completed %d, wrote %v; it must be dropped", completed, wrote)
				}
				x.throw(x.packet(o, nil))
				completed, wrote := look()
				if completes := o.Ends() && o != wire.UCWriteOnly; !wrote || (completed == 1) != completes {
					t.Fatalf("right packet: completed %d, wrote %v", completed, wrote)
				}
				if completed > 0 { // its receive is used up: finish expects all
					q, id, at := x.uc, uint64(100), hostileRecvAt
					if o.Transport() == wire.TransportUD {
						q, id, at = x.ud, 200, hostileRecvAt+hostileRecvs*hostileRecvLen
					}
					x.w.a.recvOn(q, id, x.w.a.sge(at, hostileRecvLen))
				}
				x.finish(t)
			})
		}
	}
}

// FuzzHostileDatagrams: whatever UC and UD packets a peer sends, the engine does not panic,
// writes nothing outside the buffers opened to it, no queue pair leaves RTS, and every receive
// completes once.
func FuzzHostileDatagrams(f *testing.F) {
	for _, op := range []byte{0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x64, 0x65} {
		f.Add([]byte{op, 0, 0, 0, 0, 100, 0, 0, 0, 0, op, 0, 1, 0, 0, 100, 0, 0, 0, 0})
	}
	// First, Middle, Last of each kind.
	for _, op := range []byte{0x20, 0x26} {
		f.Add([]byte{op, 0, 0, 0, 4, 0, 0, 0, 0, 0, op + 1, 0, 1, 0, 4, 0, 0, 0, 0, 0, op + 2, 0, 2, 0, 1, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHostile(t)
		const record = 10
		var send []func(k *fabric.Packet)
		for i := 0; len(data) >= record && i < 64; i++ {
			b := data[:record]
			data = data[record:]
			send = append(send, func(k *fabric.Packet) {
				if b[1]&0x80 != 0 {
					k.HdrLen = copy(k.Hdr[:], b)
					return
				}
				n := int(binary.BigEndian.Uint16(b[4:])) % 5000
				hd := wire.Header{
					Opcode: wire.Opcode(b[0]), PKey: wire.DefaultPKey, DestQP: h.uc.Num(), PSN: wire.NewPSN(100 + uint32(int8(b[2]))),
					QKey: testQKey, SrcQP: 7, VA: h.w.a.at(0) + uint64(b[6])*40, RKey: h.open.RKey(), Length: uint32(n) + uint32(b[7])*16,
					Imm: uint32(b[8]), Solicited: b[8]&1 != 0,
				}
				if hd.Opcode.Transport() == wire.TransportUD {
					hd.DestQP = h.ud.Num()
				}
				if b[1]&1 != 0 {
					hd.RKey, hd.QKey = hd.RKey^uint32(b[9]), hd.QKey^uint32(b[9])
				}
				if b[1]&2 != 0 {
					hd.VA = ^uint64(0) - uint64(b[6])
				}
				if b[1]&4 != 0 {
					hd.DestQP = verbs.McastQPN
				}
				if b[1]&8 != 0 {
					hd.Length *= 1 << 16
				}
				if b[1]&16 != 0 {
					k.Dst = testGroup // as if the link had delivered it to the group
				}
				k.SetHeader(&hd)
				k.AddCopy(make([]byte, n/2))
				k.AddCopy(make([]byte, n-n/2))
			})
		}
		h.throw(send...)
		h.finish(t)
	})
}
