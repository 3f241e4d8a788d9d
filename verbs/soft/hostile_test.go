package soft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// rogue is an endpoint that sends the packets it is given.
type rogue struct {
	port *fabric.Port
	send []func(k *fabric.Packet)
	to   verbs.GID
	deaf bool                   // takes no packets
	got  func(k *fabric.Packet) // if not nil, gets the packets taken
}

func (r *rogue) Progress(time.Duration) (time.Duration, bool) {
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
		r.port.Send(wire.To(k.Dst), k)
	}
	r.send = nil
	return 0, false
}

// roguePackets makes packets from fuzz input: 12 bytes each choose opcode, PSN near the expected
// one, key, range, length and syndrome. A first byte of 0xff selects a raw header.
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

// FuzzHostilePackets: whatever a peer sends, the engine does not panic, writes nothing outside
// the region opened to that peer, and every posted request completes exactly once.
func FuzzHostilePackets(f *testing.F) {
	f.Add([]byte{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	for op := range byte(0x1f) { // a plausible packet of each kind, then a reply
		f.Add([]byte{op, 1, 0, 3, 0, 1, 0x60, 1, 2, 3, 4, 5, 0x11, 1, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fab := fabric.New(fabric.Config{Virtual: true})
		p := must.Get(New(Config{Fabric: fab, Devices: []DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}}}))(t)
		w := &world{t: t, fab: fab, p: p}
		o := options{
			cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}, cqe: 64, memory: 1 << 16, access: flushGlobal | verbs.AccessMWBind,
		}
		w.a = w.newPeer("a", o)
		r := &rogue{to: w.a.gid}
		gid := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.9"))
		port := must.Get(fab.Attach(gid, "rogue", r))(t)
		r.port = port
		w.b = &peer{gid: gid, qp: &queuePair{number: 7}}
		w.a.toRTS(verbs.QPAttr{
			PathMTU: verbs.MTU1024, RQPSN: 100, SQPSN: 100, AccessFlags: flushGlobal, Port: 1,
			MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 4, RetryCnt: 2, RNRRetry: 1,
		}, w.b)
		mem.Poison(w.a.data())
		open := must.Get(w.a.pd.RegMR(w.a.at(0), 8192, w.a.at(0), flushGlobal))(t)
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
			must.Do(t, obj.Close())
		}
		port.Detach()
		for _, a := range []*mem.Arena{w.a.arena, w.a.wrs, w.a.wcs} {
			must.Do(t, a.Unmap())
		}
	})
}

// inject sends a request packet to b's queue pair as if a had sent it, and settles.
func (w *world) inject(h wire.Header, payload []byte) {
	q := w.a.qp
	q.dev.exclusive(func() {
		k := q.dev.p.Get()
		k.AddCopy(payload)
		q.transmit(k, &h)
	})
	w.settle()
}

// next returns the PSN that b's responder expects.
func (w *world) next() uint64 { return w.b.qp.resp.expected }

// TestHostileMemoryPackets: a valid FLUSH, ATOMIC_WRITE or SEND_WITH_INV executes. With any one
// field wrong it writes nothing, invalidates nothing, and breaks only its connection.
func TestHostileMemoryPackets(t *testing.T) {
	const at = 4096 // in b's memory, poisoned
	word := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	type packet struct {
		h       wire.Header
		payload []byte
	}
	good := map[string]func(w *world, mw *memoryWindow) packet{
		"flush": func(w *world, _ *memoryWindow) packet {
			return packet{h: wire.Header{Opcode: wire.RCFlush, VA: w.b.at(at), RKey: w.b.mr.RKey(), Length: 64, FlushPlacement: 1}}
		},
		"atomic write": func(w *world, _ *memoryWindow) packet {
			return packet{wire.Header{Opcode: wire.RCAtomicWrite, VA: w.b.at(at), RKey: w.b.mr.RKey(), Length: 8}, word}
		},
		"send": func(_ *world, mw *memoryWindow) packet {
			return packet{wire.Header{Opcode: wire.RCSendOnlyInv, InvKey: mw.RKey()}, word}
		},
	}
	for _, c := range []struct {
		kind, name string
		spoil      func(p *packet)
		ok         bool
		acked      bool // refused, and yet acknowledged: class J
	}{
		{"flush", "good", func(*packet) {}, true, false},
		{"flush", "no placement", func(p *packet) { p.h.FlushPlacement = 0 }, false, false},
		{"flush", "persistent", func(p *packet) { p.h.FlushPlacement = 2 }, false, false},
		{"flush", "reserved placement", func(p *packet) { p.h.FlushPlacement = 9 }, false, false},
		{"flush", "reserved level", func(p *packet) { p.h.FlushSelectivity = 3 }, false, false},
		{"flush", "key", func(p *packet) { p.h.RKey ^= 1 << 20 }, false, false},
		{"flush", "tag", func(p *packet) { p.h.RKey ^= 1 }, false, false},
		{"flush", "address", func(p *packet) { p.h.VA = ^uint64(0) - 3 }, false, false},
		{"flush", "length", func(p *packet) { p.h.Length = 1<<32 - 1 }, false, false},
		{"atomic write", "good", func(*packet) {}, true, false},
		{"atomic write", "no payload", func(p *packet) { p.payload = nil }, false, false},
		{"atomic write", "short payload", func(p *packet) { p.payload = word[:4] }, false, false},
		{"atomic write", "long payload", func(p *packet) { p.payload = make([]byte, 16) }, false, false},
		{"atomic write", "payload of a packet", func(p *packet) { p.payload = make([]byte, 1024) }, false, false},
		{"atomic write", "payload of two packets", func(p *packet) { p.payload = make([]byte, 2048) }, false, false},
		{"atomic write", "length 0", func(p *packet) { p.h.Length = 0 }, false, false},
		{"atomic write", "length 16, payload 16", func(p *packet) { p.h.Length, p.payload = 16, make([]byte, 16) }, false, false},
		{"atomic write", "length 4, payload 4", func(p *packet) { p.h.Length, p.payload = 4, word[:4] }, false, false},
		{"atomic write", "not aligned", func(p *packet) { p.h.VA += 4 }, false, false},
		{"atomic write", "key", func(p *packet) { p.h.RKey ^= 1 << 20 }, false, false},
		{"atomic write", "address", func(p *packet) { p.h.VA = ^uint64(0) - 7 }, false, false},
		{"send", "good", func(*packet) {}, true, false},
		{"send", "key", func(p *packet) { p.h.InvKey ^= 1 << 20 }, false, true},
		{"send", "tag", func(p *packet) { p.h.InvKey ^= 1 }, false, true},
		{"send", "last without first", func(p *packet) { p.h.Opcode = wire.RCSendLastInv }, false, false},
		{"send", "too long", func(p *packet) { p.payload = make([]byte, 2048) }, false, false},
	} {
		t.Run(c.kind+", "+c.name, func(t *testing.T) {
			w := newWorld(t, options{access: flushGlobal | verbs.AccessMWBind})
			mw := w.b.newMW(verbs.MWType2)
			closing(t, mw)
			w.b.bound(mw, 0, 8, remoteAll)
			mem.Poison(w.b.data())
			w.b.recv(9, w.b.sge(0, 64))
			p := good[c.kind](w, mw)
			c.spoil(&p)
			before := w.next()
			p.h.PSN, p.h.AckReq = narrow(before), true
			w.inject(p.h, p.payload)
			advanced := w.next() == before+1
			if want := c.ok || c.acked; advanced != want {
				t.Fatalf("executed: %v, want %v", advanced, want)
			}
			if s := w.b.state(); (s == verbs.QPSRTS) != c.ok {
				t.Fatalf("the queue pair is in %v", s)
			}
			if touched := mem.Poisoned(w.b.data()[at:]); (touched == 0) != (c.ok && c.kind == "atomic write") || touched > 0 {
				t.Fatalf("first byte written: %d", touched)
			}
			if bound := mw.mr != nil; bound == (c.ok && c.kind == "send") {
				t.Fatalf("the window is bound: %v", bound)
			}
			w.b.events()
		})
	}
}

// TestOldMemoryPackets: repeated packets are answered and not executed. A remembered ATOMIC_WRITE
// does not write again, one that is not remembered has no effect, an old FLUSH is answered each
// time, and never more than a bounded number of answers are pending.
func TestOldMemoryPackets(t *testing.T) {
	w := newWorld(t, options{access: flushGlobal})
	h := wire.Header{Opcode: wire.RCAtomicWrite, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: 8}
	first := w.next()
	h.PSN = narrow(first)
	w.inject(h, []byte{1, 1, 1, 1, 1, 1, 1, 1})
	w.b.setWord(0, 7)
	for _, psn := range []uint64{first, first - 1, first - 1000} {
		h.PSN = narrow(psn)
		w.inject(h, []byte{2, 2, 2, 2, 2, 2, 2, 2})
		if got := w.b.word(0); got != 7 || w.next() != first+1 {
			t.Fatalf("an old ATOMIC_WRITE (%d before) was executed: the word is %#x", first-psn, got)
		}
	}
	f := wire.Header{Opcode: wire.RCFlush, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: 8, FlushPlacement: 1}
	most := 0
	q := w.a.qp
	q.dev.exclusive(func() {
		for i := range uint64(4000) {
			f.PSN = narrow(first - 1 - i)
			q.transmit(q.dev.p.Get(), &f)
		}
	})
	for w.fab.Step() {
		most = max(most, w.b.qp.resp.pending()) // virtual time: one goroutine
	}
	if most > windowPSNs || most == 0 {
		t.Fatalf("%d answers to old FLUSHes wait, the bound is %d", most, windowPSNs)
	}
	if w.b.state() != verbs.QPSRTS {
		t.Fatalf("old packets brought the queue pair to %v", w.b.state())
	}
}

// TestForgedAnswers: the answer to a FLUSH or an ATOMIC_WRITE is an empty READ response. An
// answer of another kind or length fails the request, and an acknowledgement alone does not
// complete it.
func TestForgedAnswers(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRFlush, verbs.WRAtomicWrite} {
		for _, c := range []struct {
			answer wire.Opcode
			n      int
			want   string
		}{
			{wire.RCReadRespOnly, 0, "1:SUCCESS "},
			{wire.RCReadRespOnly, 8, "1:BAD_RESP_ERR "},
			{wire.RCAtomicAck, 0, "1:BAD_RESP_ERR "},
			{wire.RCAcknowledge, 0, ""},
		} {
			t.Run(fmt.Sprint(op, c), func(t *testing.T) {
				w := newWorld(t, options{access: flushGlobal, attr: func(a *verbs.QPAttr) { a.Timeout = 0 }})
				must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)) // it does not answer
				psn := w.a.qp.req.next
				if op == verbs.WRFlush {
					w.a.mustPostExtended(w.a.flushWR(1, 0, 0, 8, 1, 0))
				} else {
					w.a.mustPostExtended(w.a.atomicWR(1, 0, 0, 8))
				}
				w.settle()
				q := w.b.qp
				q.dev.exclusive(func() {
					k := q.dev.p.Get()
					k.AddCopy(make([]byte, c.n))
					q.transmit(k, &wire.Header{Opcode: c.answer, PSN: narrow(psn), Syndrome: wire.Ack(wire.CreditInvalid)})
				})
				w.settle()
				if got := statuses(w.a.poll(w.a.scq)); got != c.want {
					t.Fatalf("answered by %v of %d bytes: %q, want %q", c.answer, c.n, got, c.want)
				}
			})
		}
	}
}
