package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// besieged is an xrcWorld whose XRC_RECV queue pair, in place of a's, hears a
// rogue.
func besieged(t tb) (*xrcWorld, *rogue) {
	t.Helper()
	x := newXRC(t)
	r := &rogue{to: x.b.gid}
	gid := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.9"))
	port, err := x.fab.Attach(gid, "rogue", r)
	must(t, err)
	r.port = port
	t.Cleanup(port.Detach)
	x.recv.q.attr.AH.DGID, x.send.attr.AH.DGID = gid, gid // the engine is at rest
	return x, r
}

// shoot sends packets: what is common to them is filled in.
func (x *xrcWorld) shoot(r *rogue, hs ...wire.Header) {
	for _, h := range hs {
		h.PKey = wire.DefaultPKey
		n := 8
		if !h.Opcode.Ends() {
			n = 1024
		}
		if !h.Opcode.HasPayload() {
			n = 0
		}
		r.send = append(r.send, func(k *fabric.Packet) {
			k.SetHeader(&h)
			k.AddCopy(make([]byte, n))
		})
	}
	r.port.Kick()
	x.settle()
}

// TestXRCMessageStaysWithItsQueue: a message whose packets name different queues
// is refused: the receive that it took completes with the reason, the other
// queue keeps its.
func TestXRCMessageStaysWithItsQueue(t *testing.T) {
	x, r := besieged(t)
	x.post(0, 1, 0, 4096)
	x.post(1, 2, 0, 4096)
	x.shoot(r,
		wire.Header{Opcode: wire.XRCSendFirst, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x10), XRCSRQ: x.srqs[0].Num()},
		wire.Header{Opcode: wire.XRCSendLast, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x11), XRCSRQ: x.srqs[1].Num()})
	if a, b := x.got(0), x.got(1); a != "1:REM_INV_REQ_ERR " || b != "" {
		t.Fatalf("completions %q and %q, want the first receive refused and the second untouched", a, b)
	}
}

// TestXRCHalves: an XRC_SEND queue pair takes no requests, an XRC_RECV one no
// answers.
func TestXRCHalves(t *testing.T) {
	x, r := besieged(t)
	x.a.poll(x.a.scq)
	before := x.recv.q.req
	r.to = x.b.gid
	x.shoot(r, wire.Header{Opcode: wire.XRCAcknowledge, DestQP: x.recv.Num(), PSN: wire.NewPSN(0x1f), Syndrome: wire.Nak(wire.NakInvalid)})
	if x.recv.q.req != before {
		t.Fatalf("an answer moved an XRC_RECV queue pair: %+v", x.recv.q.req)
	}
	r.to = x.a.gid
	x.shoot(r, wire.Header{Opcode: wire.XRCSendOnly, DestQP: x.send.Num(), PSN: wire.NewPSN(0x20), AckReq: true, XRCSRQ: x.srqs[0].Num()})
	if s := x.a.state(); s != verbs.QPSRTS || x.send.resp.established {
		t.Fatalf("a request reached an XRC_SEND queue pair, now in %v", s)
	}
}

// FuzzHostileXRC: whatever a peer puts into XRC requests, nothing outside the
// region of the queue it names is written, and no receive completes twice.
func FuzzHostileXRC(f *testing.F) {
	const record = 8
	for op := range byte(0x1e) {
		f.Add([]byte{op, 0, 0, 0, 8, 0, 0, 0, op, 0, 1, 1, 0, 4, 0, 1})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, r := besieged(t)
		mem.Poison(x.b.data())
		x.post(0, 1, 8192, 2048)
		x.post(1, 2, 12288, 2048)
		open, err := x.pds[0].RegMR(x.b.at(0), 4096, x.b.at(0), allAccess)
		must(t, err)
		psn := uint32(0x10)
		for i := 0; len(data) >= record && i < 32; i++ {
			b := data[:record]
			data = data[record:]
			h := wire.Header{
				Opcode: wire.TransportXRC.With(wire.Op(b[0] & 0x1f)), DestQP: x.recv.Num(), PSN: wire.NewPSN(psn + uint32(b[2]&3) - uint32(b[2]>>6)),
				XRCSRQ: x.srqs[b[3]&1].Num() + uint32(b[3]>>5), VA: open.Addr() + uint64(b[1])*32, RKey: open.RKey(),
				Length: uint32(binary.LittleEndian.Uint16(b[4:])), AckReq: b[6]&1 != 0, SwapAdd: uint64(b[7]),
			}
			if !h.Opcode.Valid() {
				continue
			}
			x.shoot(r, h)
			psn++
		}
		_ = x.recv.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
		x.settle()
		for i, id := range []uint64{1, 2} {
			if wcs := x.b.poll(x.cqs[i]); len(wcs) > 1 || len(wcs) == 1 && wcs[0].WRID != id {
				t.Fatalf("completions %+v at queue %d, want receive %d at most once", wcs, i, id)
			}
		}
		for _, free := range [][2]int{{4096, 8192}, {8192 + 2048, 12288}, {12288 + 2048, len(x.b.data())}} {
			if at := mem.Poisoned(x.b.data()[free[0]:free[1]]); at >= 0 {
				t.Fatalf("a byte outside every buffer was written, at %d", free[0]+at)
			}
		}
		must(t, open.Close())
	})
}
