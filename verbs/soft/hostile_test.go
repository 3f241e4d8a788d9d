package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// rogue is an endpoint that sends whatever it is given.
type rogue struct {
	port *fabric.Port
	send []func(k *fabric.Packet)
	to   verbs.GID
	deaf bool                   // takes nothing
	got  func(k *fabric.Packet) // nil, or shown what is taken
}

func (r *rogue) Turn(time.Duration) (time.Duration, bool) {
	if r.port == nil {
		return 0, false
	}
	for !r.deaf {
		k := r.port.Take()
		if k == nil {
			break
		}
		if r.got != nil {
			r.got(k)
		}
		k.Release()
	}
	for _, fill := range r.send {
		k := r.port.Get()
		k.Dst = r.to
		fill(k)
		if isMulticast(k.Dst) {
			r.port.SendGroup(r.port.Fabric().Group(k.Dst), k)
			continue
		}
		r.port.Send(k)
	}
	r.send = nil
	return 0, false
}

// roguePackets makes packets out of fuzz input: 12 bytes each choose opcode,
// PSN near what is expected, key, range, length and syndrome; every eighth is
// taken raw.
func roguePackets(data []byte, q *queuePair, m verbs.MR, psn uint32) (send []func(k *fabric.Packet)) {
	const record = 12
	payload := make([]byte, 4096)
	for i := 0; len(data) >= record && i < 64; i++ {
		b := data[:record]
		data = data[record:]
		send = append(send, func(k *fabric.Packet) {
			if b[0] == 0xff {
				k.HdrLen = copy(k.Hdr[:], b[1:])
				return
			}
			h := wire.Header{
				Opcode: wire.Opcode(b[0] & 0x1f), PKey: wire.DefaultPKey, DestQP: q.Num(), AckReq: b[1]&1 != 0,
				PSN: wire.NewPSN(psn + uint32(int8(b[2])/8)), VA: m.Addr() + uint64(b[3])*17, RKey: m.RKey(),
				Length: uint32(binary.LittleEndian.Uint16(b[4:])), Syndrome: wire.Syndrome(b[6]),
				SwapAdd: uint64(b[7]), Compare: uint64(b[8]), Orig: uint64(b[9]), Imm: uint32(b[10]),
				InvKey: m.RKey() ^ uint32(b[9]), FlushPlacement: b[7], FlushSelectivity: b[8],
			}
			if b[1]&2 != 0 {
				h.RKey ^= uint32(b[11])
			}
			if b[1]&4 != 0 {
				h.VA = ^uint64(0) - uint64(b[3])
			}
			if b[1]&8 != 0 {
				h.Opcode = wire.Opcode(b[0])
			}
			if b[1]&16 != 0 {
				h.Length *= 1 << 16
			}
			k.SetHeader(&h)
			n := min(len(payload), int(h.Length))
			if b[1]&32 != 0 {
				n = int(binary.LittleEndian.Uint16(b[10:])) % len(payload)
			}
			k.AddCopy(payload[:n])
		})
	}
	return send
}

// FuzzHostilePackets: whatever a peer sends, the engine does not panic, writes
// nothing outside the region opened to that peer, and every request posted
// completes exactly once.
func FuzzHostilePackets(f *testing.F) {
	f.Add([]byte{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	for op := range byte(0x1f) { // a plausible packet of each kind, then a reply
		f.Add([]byte{op, 1, 0, 3, 0, 1, 0x60, 1, 2, 3, 4, 5, 0x11, 1, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fab := fabric.New(fabric.Config{Virtual: true})
		p, err := New(Config{Fabric: fab, Devices: []DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}}})
		must(t, err)
		w := &world{t: t, fab: fab, p: p}
		o := options{
			cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}, cqe: 64, memory: 1 << 16, access: flushGlobal | verbs.AccessMWBind,
		}
		w.a = w.newPeer("a", o)
		r := &rogue{to: w.a.gid}
		gid := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.9"))
		port, err := fab.Attach(gid, "rogue", r)
		must(t, err)
		r.port = port
		w.b = &peer{gid: gid, qp: &queuePair{number: 7}}
		w.a.toRTS(verbs.QPAttr{
			PathMTU: verbs.MTU1024, RQPSN: 100, SQPSN: 100, AccessFlags: flushGlobal, Port: 1,
			MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 4, RetryCnt: 2, RNRRetry: 1,
		}, w.b)
		mem.Poison(w.a.data())
		open, err := w.a.pd.RegMR(w.a.at(0), 8192, w.a.at(0), flushGlobal)
		must(t, err)
		w.a.recv(100, w.a.sge(8192, 1024))
		w.a.recv(101, w.a.sge(9216, 1024))
		read := w.a.send(1, verbs.WRRDMARead, 0, w.a.sge(16384, 2048))
		atomic := w.a.send(2, verbs.WRAtomicFetchAndAdd, 0, w.a.sge(20480, 8))
		w.a.mustPost(w.a.send(0, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 1500)), read, atomic)
		fab.Step()
		r.send = roguePackets(data, w.a.qp, open, 100)
		port.Kick()
		w.settle()
		_ = w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
		w.settle()
		seen := map[uint64]int{}
		for _, c := range append(w.a.poll(w.a.scq), w.a.poll(w.a.rcq)...) {
			seen[c.WRID]++
		}
		for _, id := range []uint64{100, 101} {
			if seen[id] != 1 {
				t.Fatalf("receive %d completed %d times", id, seen[id])
			}
		}
		for id := range uint64(3) {
			if n := seen[id]; n > 1 {
				t.Fatalf("request %d completed %d times", id, n)
			}
		}
		for _, free := range [][2]int{{10240, 16384}, {18432, 20480}, {20488, 1 << 16}} {
			if at := mem.Poisoned(w.a.data()[free[0]:free[1]]); at >= 0 {
				t.Fatalf("a byte outside every buffer was written, at %d", free[0]+at)
			}
		}
		w.a.events()
		for _, obj := range []verbs.Object{w.a.qp, open, w.a.mr, w.a.scq, w.a.rcq, w.a.pd, w.a.ctx} {
			must(t, obj.Close())
		}
		port.Detach()
		for _, a := range []*mem.Arena{w.a.arena, w.a.wrs, w.a.wcs} {
			must(t, a.Unmap())
		}
	})
}
