package soft

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// kinds are the worlds in which every lossless rule must hold.
func kinds(t *testing.T, fn func(t *testing.T, w *world)) {
	for _, k := range []struct {
		name string
		o    options
	}{
		{"virtual/256", options{mtu: verbs.MTU256}},
		{"virtual/4096", options{mtu: verbs.MTU4096}},
		{"virtual/jumbo", options{jumbo: true}},
		{"real/1024", options{real: true}},
		{"real/jumbo", options{real: true, jumbo: true}},
	} {
		t.Run(k.name, func(t *testing.T) { fn(t, newWorld(t, k.o)) })
	}
}

// sizes are lengths around multiples of every path MTU.
var sizes = []int{0, 1, 8, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 70000}

func TestWriteMovesTheBytes(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			fill(w.a.data()[:n], byte(i))
			clear(w.b.data()[:80000])
			wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, n))
			wr.SetRDMA(w.b.at(100), w.b.mr.RKey())
			w.a.mustPost(wr)
			wcs := w.a.want(w.a.scq, 1)
			w.a.ok(wcs, uint64(i))
			if wcs[0].Opcode != verbs.WCRDMAWrite {
				t.Fatalf("a WRITE completes as RDMA_WRITE, got %v", wcs[0].Opcode)
			}
			if !bytes.Equal(w.b.data()[100:100+n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after WRITE", n)
			}
			if w.b.data()[99] != 0 || w.b.data()[100+n] != 0 {
				t.Fatalf("WRITE of %d bytes touched a byte beside its range", n)
			}
		}
	})
}

func TestReadMovesTheBytes(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range append(sizes, 600000) {
			fill(w.b.data()[:n], byte(i))
			clear(w.a.data())
			wr := w.a.send(uint64(i), verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(10, n/3), w.a.sge(10+n/3, n-n/3))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
			wcs := w.a.want(w.a.scq, 1)
			w.a.ok(wcs, uint64(i))
			if wcs[0].Opcode != verbs.WCRDMARead || wcs[0].ByteLen != uint32(n) {
				t.Fatalf("READ of %d completes with %v, %d bytes", n, wcs[0].Opcode, wcs[0].ByteLen)
			}
			if !bytes.Equal(w.a.data()[10:10+n], w.b.data()[:n]) {
				t.Fatalf("%d bytes differ after READ", n)
			}
			if w.a.data()[9] != 0 || w.a.data()[10+n] != 0 {
				t.Fatalf("READ of %d bytes touched a byte beside its range", n)
			}
		}
	})
}

func TestSendFillsTheReceiveInOrder(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			clear(w.b.data())
			fill(w.a.data()[:n], byte(i))
			w.b.recv(uint64(i), w.b.sge(0, 40000), w.b.sge(40000, 40000))
			wr := w.a.send(uint64(i), verbs.WRSendWithImm, verbs.SendSignaled, w.a.sge(0, n/2), w.a.sge(n/2, n-n/2))
			wr.SetImm(0x01020304)
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), uint64(i))
			r := w.b.want(w.b.rcq, 1)
			w.b.ok(r, uint64(i))
			if r[0].Opcode != verbs.WCRecv || r[0].ByteLen != uint32(n) || r[0].Flags&verbs.WCWithImm == 0 || r[0].Imm() != 0x01020304 {
				t.Fatalf("SEND_WITH_IMM of %d received as %v, %d bytes, %v, imm 0x%x", n, r[0].Opcode, r[0].ByteLen, r[0].Flags, r[0].Imm())
			}
			if !bytes.Equal(w.b.data()[:n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after SEND", n)
			}
		}
	})
}

func TestWriteWithImmTakesAReceive(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			fill(w.a.data()[:n], byte(i))
			w.b.recv(uint64(i))
			wr := w.a.send(uint64(i), verbs.WRRDMAWriteWithImm, verbs.SendSignaled, w.a.sge(0, n))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			wr.SetImm(uint32(i))
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), uint64(i))
			r := w.b.want(w.b.rcq, 1)
			w.b.ok(r, uint64(i))
			if r[0].Opcode != verbs.WCRecvRDMAWithImm || r[0].ByteLen != uint32(n) || r[0].Imm() != uint32(i) {
				t.Fatalf("WRITE_WITH_IMM of %d received as %v, %d bytes, imm %d", n, r[0].Opcode, r[0].ByteLen, r[0].Imm())
			}
			if !bytes.Equal(w.b.data()[:n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after WRITE_WITH_IMM", n)
			}
		}
	})
}

func TestAtomics(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		w.b.setWord(64, 40)
		add := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(0, 8))
		add.SetFetchAdd(w.b.at(64), w.b.mr.RKey(), 2)
		hit := w.a.send(2, verbs.WRAtomicCmpAndSwp, verbs.SendSignaled, w.a.sge(8, 8))
		hit.SetCompareSwap(w.b.at(64), w.b.mr.RKey(), 42, 7)
		miss := w.a.send(3, verbs.WRAtomicCmpAndSwp, verbs.SendSignaled, w.a.sge(16, 8))
		miss.SetCompareSwap(w.b.at(64), w.b.mr.RKey(), 42, 9)
		w.a.mustPost(add, hit, miss)
		wcs := w.a.want(w.a.scq, 3)
		w.a.ok(wcs, 1)
		for i, op := range []verbs.WCOpcode{verbs.WCFetchAdd, verbs.WCCompSwap, verbs.WCCompSwap} {
			if wcs[i].Opcode != op || wcs[i].ByteLen != 8 {
				t.Fatalf("atomic %d completes as %v with %d bytes, want %v with 8", i, wcs[i].Opcode, wcs[i].ByteLen, op)
			}
		}
		if got := fmt.Sprint(w.a.word(0), w.a.word(8), w.a.word(16), w.b.word(64)); got != "40 42 7 7" {
			t.Fatalf("found and left behind: %s, want 40 42 7 7", got)
		}
	})
}

func TestInlineBufferIsFreeAtOnce(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for _, n := range []int{5, 200} {
			fill(w.a.data()[:n], 9)
			want := bytes.Clone(w.a.data()[:n])
			s := w.a.sge(0, n)
			s.LKey = 0 // not looked at
			wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled|verbs.SendInline, s)
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
			clear(w.a.data()[:n])
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			if !bytes.Equal(w.b.data()[:n], want) {
				t.Fatalf("inline payload of %d bytes is not what stood there when it was posted", n)
			}
		}
	})
}

// TestLongReadTakesOneResource: a READ of many thousand packets works with a
// responder that serves one at a time, also when others queue behind it.
func TestLongReadTakesOneResource(t *testing.T) {
	w := newWorld(t, options{mtu: verbs.MTU256, attr: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 1, 1 }})
	const n = 500000
	fill(w.b.data()[:n], 5)
	var wrs []request
	for i := range 3 {
		wr := w.a.send(uint64(i), verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(n*(i%2), n))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		wrs = append(wrs, wr)
	}
	w.a.mustPost(wrs...)
	w.a.ok(w.a.want(w.a.scq, 3), 0)
	if !bytes.Equal(w.a.data()[:n], w.b.data()[:n]) || !bytes.Equal(w.a.data()[n:2*n], w.b.data()[:n]) {
		t.Fatalf("bytes differ")
	}
}
