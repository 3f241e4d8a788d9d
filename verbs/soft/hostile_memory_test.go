package soft

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// inject sends a request packet to b's queue pair as if a had sent it, and lets
// everything happen.
func (w *world) inject(h wire.Header, payload []byte) {
	q := w.a.qp
	q.dev.exclusive(func() {
		k := q.dev.p.Get()
		k.AddCopy(payload)
		q.transmit(k, &h)
	})
	w.settle()
}

// next is the PSN that b's responder expects.
func (w *world) next() uint64 { return w.b.qp.resp.expected }

// TestHostileMemoryPackets: a FLUSH, an ATOMIC_WRITE or a SEND_WITH_INV that is
// as it should be does its work; with any one field wrong it writes nothing,
// takes nothing away, and ends the connection, and only that.
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

// TestOldMemoryPackets: repeated packets are answered and not executed. An
// ATOMIC_WRITE that is remembered does not write again, one that is not
// remembered does nothing, an old FLUSH is answered however often it comes, and
// never keeps more than a bounded number of answers waiting.
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

// TestForgedAnswers: the answer to a FLUSH or an ATOMIC_WRITE is a READ response
// of no bytes; an answer of another kind or length fails the request, and an
// acknowledgement alone is none.
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
				must(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)) // it will not answer
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
