package soft

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// The memory of each end in the random test. Every transfer has a place of its
// own, so that what one must not touch is known.
const (
	srcAt   = 0        // never written: what is sent, written, and read by the peer
	srcLen  = 64 << 10 //
	dstAt   = 1 << 17  // where the peer writes
	readAt  = 3 << 17  // where answers come
	recvAt  = 5 << 17  // where receives point
	recvLen = 20 << 10
	wordsAt = 7 << 17 // atomics of the peer
	nWords  = 4
)

// side is one direction of the random test: what a asks of b.
type side struct {
	from, to         *peer
	dst, read, recvs int // bump offsets
	words            [nWords]uint64
	checks           []func() error
	ids              []uint64 // signaled, in order
	recvWant         []verbs.WC
	nextID           uint64
}

// ask posts one random request and notes what must come of it.
func (s *side) ask(t *rapid.T) {
	id := s.nextID
	s.nextID++
	op := rapid.SampledFrom([]verbs.WROpcode{
		verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
		verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp,
	}).Draw(t, "op")
	n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 9000)).Draw(t, "n")
	off := rapid.IntRange(0, srcLen-n).Draw(t, "off")
	flags := verbs.SendFlags(0)
	if rapid.Bool().Draw(t, "signaled") {
		flags |= verbs.SendSignaled
	}
	if rapid.IntRange(0, 5).Draw(t, "fence") == 0 {
		flags |= verbs.SendFence
	}
	a, b := s.from, s.to
	var wr request
	same := func(what string, got func() []byte, want []byte) {
		s.checks = append(s.checks, func() error {
			if !bytes.Equal(got(), want) {
				return fmt.Errorf("request %d: %s of %d bytes brought other bytes", id, what, len(want))
			}
			return nil
		})
	}
	whole := rapid.Bool().Draw(t, "one element")
	sges := func(at, n int) []verbs.SGE {
		if whole {
			return []verbs.SGE{a.sge(at, n)}
		}
		cut := n / 2
		return []verbs.SGE{a.sge(at, cut), a.sge(at+cut, n-cut)}
	}
	switch op {
	case verbs.WRSend, verbs.WRSendWithImm:
		wr = a.send(id, op, flags, sges(srcAt+off, n)...)
		at := s.recvs
		s.recvs += n
		b.recv(id, b.sge(at, n))
		wc := verbs.WC{WRID: id, Opcode: verbs.WCRecv, ByteLen: uint32(n)}
		s.recvWant = append(s.recvWant, wc)
		same("SEND", func() []byte { return b.data()[at : at+n] }, a.data()[srcAt+off:srcAt+off+n])
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		wr = a.send(id, op, flags, sges(srcAt+off, n)...)
		at := s.dst
		s.dst += n
		wr.SetRDMA(b.at(at), b.mr.RKey())
		if op == verbs.WRRDMAWriteWithImm {
			b.recv(id)
			s.recvWant = append(s.recvWant, verbs.WC{WRID: id, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: uint32(n)})
		}
		same("WRITE", func() []byte { return b.data()[at : at+n] }, a.data()[srcAt+off:srcAt+off+n])
	case verbs.WRRDMARead:
		at := s.read
		s.read += n
		wr = a.send(id, op, flags, sges(at, n)...)
		wr.SetRDMA(b.at(srcAt+off), b.mr.RKey())
		same("READ", func() []byte { return a.data()[at : at+n] }, b.data()[srcAt+off:srcAt+off+n])
	default:
		at := s.read
		s.read += 8
		wr = a.send(id, op, flags, a.sge(at, 8))
		i := rapid.IntRange(0, nWords-1).Draw(t, "word")
		found := s.words[i]
		v := rapid.Uint64().Draw(t, "operand")
		target := b.at(wordsAt + 8*i)
		if op == verbs.WRAtomicFetchAndAdd {
			wr.SetFetchAdd(target, b.mr.RKey(), v)
			s.words[i] += v
		} else {
			compare := found
			if rapid.Bool().Draw(t, "miss") {
				compare++
			} else {
				s.words[i] = v
			}
			wr.SetCompareSwap(target, b.mr.RKey(), compare, v)
		}
		s.checks = append(s.checks, func() error {
			if got := a.word(at); got != found {
				return fmt.Errorf("request %d: %v found %d, in order it is %d", id, op, got, found)
			}
			return nil
		})
	}
	if op.HasImm() {
		wr.SetImm(uint32(id))
	}
	if flags&verbs.SendSignaled != 0 {
		s.ids = append(s.ids, id)
	}
	a.mustPost(wr)
}

// TestRandomWorkOverABadLink: whatever the link does short of cutting it,
// every request is executed exactly once and in order, brings the right bytes,
// touches no other, and completes once, in order.
func TestRandomWorkOverABadLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtu := rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096, verbs.MTUJumbo}).Draw(t, "mtu")
		w := newWorld(t, options{
			seed: rapid.Uint64().Draw(t, "seed"), jumbo: true, mtu: mtu,
			cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2},
		})
		l := fabric.Link{
			Loss:    rapid.SampledFrom([]float64{0, 0.02, 0.1}).Draw(t, "loss"),
			Dup:     rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "dup"),
			Reorder: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "reorder"),
			Delay:   rapid.SampledFrom([]time.Duration{0, 2 * time.Microsecond}).Draw(t, "delay"),
		}
		w.fab.SetAll(l)
		sides := []*side{{from: w.a, to: w.b}, {from: w.b, to: w.a}}
		for _, s := range sides {
			s.dst, s.read, s.recvs = dstAt, readAt, recvAt
			d := s.from.data()
			mem.Poison(d)
			fill(d[srcAt:srcAt+srcLen], byte(len(d)))
			clear(d[wordsAt : wordsAt+8*nWords])
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask a": func(t *rapid.T) { sides[0].askIfRoom(t) },
			"ask b": func(t *rapid.T) { sides[1].askIfRoom(t) },
			"step":  func(*rapid.T) { w.fab.Step() },
			"advance": func(t *rapid.T) {
				if at, ok := w.fab.NextEvent(); ok {
					w.fab.AdvanceTo(at)
				}
			},
		})
		w.settle()
		for _, s := range sides {
			s.check(t)
		}
	})
}

// askIfRoom asks while queues and memory have room.
func (s *side) askIfRoom(t *rapid.T) {
	if s.nextID >= 200 || s.dst+9000 > readAt || s.read+9000 > recvAt || s.recvs+9000 > wordsAt {
		t.Skip("full")
	}
	s.ask(t)
}

func (s *side) check(t *rapid.T) {
	wcs := s.from.poll(s.from.scq)
	if len(wcs) != len(s.ids) {
		t.Fatalf("%d signaled requests, %d completions: %+v", len(s.ids), len(wcs), wcs)
	}
	for i, c := range wcs {
		if c.WRID != s.ids[i] || c.Status != verbs.WCSuccess {
			t.Fatalf("completion %d is id %d %v, want id %d SUCCESS", i, c.WRID, c.Status, s.ids[i])
		}
	}
	got := s.to.poll(s.to.rcq)
	if len(got) != len(s.recvWant) {
		t.Fatalf("%d receives completed, want %d", len(got), len(s.recvWant))
	}
	for i, c := range got {
		if w := s.recvWant[i]; c.WRID != w.WRID || c.Status != verbs.WCSuccess || c.Opcode != w.Opcode || c.ByteLen != w.ByteLen {
			t.Fatalf("receive %d is %+v, want %+v", i, c, w)
		}
	}
	for _, check := range s.checks {
		if err := check(); err != nil {
			t.Fatalf("%v", err)
		}
	}
	for i, v := range s.words {
		if got := s.to.word(wordsAt + 8*i); got != v {
			t.Fatalf("word %d is %d, each atomic once makes %d", i, got, v)
		}
	}
	for _, r := range []struct {
		name     string
		e        *peer
		from, to int
	}{
		{"behind the writes", s.to, s.dst, readAt}, {"behind the receives", s.to, s.recvs, wordsAt},
		{"behind the answers", s.from, s.read, recvAt},
	} {
		if at := mem.Poisoned(r.e.data()[r.from:r.to]); at >= 0 {
			t.Fatalf("a byte %s was touched, at offset %d", r.name, r.from+at)
		}
	}
}
