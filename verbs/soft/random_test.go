package soft

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// The memory of each end in the random test. Every transfer has its own area, so that stray
// writes are detected.
const (
	srcAt   = 0        // never written: source of SENDs, WRITEs and the peer's READs
	srcLen  = 64 << 10 //
	dstAt   = 1 << 17  // destination of the peer's WRITEs
	readAt  = 3 << 17  // destination of answers
	recvAt  = 5 << 17  // receive buffers
	recvLen = 20 << 10
	wordsAt = 7 << 17 // targets of the peer's atomics
	nWords  = 4
)

// side is one direction of the random test: the requests from one end to the other.
type side struct {
	from, to         *peer
	dst, read, recvs int // bump offsets
	words            [nWords]uint64
	checks           []func() error
	ids              []uint64 // signaled, in order
	recvWant         []verbs.WC
	nextID           uint64
}

// ask posts one random request and records the expected result.
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

// TestRandomWorkOverABadLink: on any link that is not cut, every request executes exactly once
// and in order, transfers the right bytes, touches no other bytes, and completes once, in order.
func TestRandomWorkOverABadLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtu := rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096, verbs.MTUJumbo}).Draw(t, "mtu")
		w := newWorld(t, options{
			seed: rapid.Uint64().Draw(t, "seed"), jumbo: true, mtu: mtu, lossy: rapid.Bool().Draw(t, "lossy"),
			cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2},
		})
		l := fabric.Link{
			// A request fails if eight tries in a row lose the request or its answer. With a loss
			// of 0.05 the probability is (1-0.95²)^8, about 10^-8; with 0.1 it was 2·10^-6, and a
			// run of CI failed by chance.
			Loss:    rapid.SampledFrom([]float64{0, 0.02, 0.05}).Draw(t, "loss"),
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

// The memory of each end in the random test of the unreliable services. Every message and every
// receive has its own area.
const (
	looseSrcAt  = 0
	looseDstAt  = 1 << 18 // destination of the peer's WRITEs
	looseRecvAt = 2 << 18
	looseEnd    = 3 << 18
	looseMax    = 3000 // bytes of a message
)

// loose is one end of the random test: its sent messages and its posted receives.
type loose struct {
	e        *peer
	src, dst int // bump offsets
	recvs    int
	sent     []looseMessage // by id
	polled   int            // completed sends
	sizes    []looseReceive // by id
	done     map[uint64]int // completed receives
}

type looseMessage struct {
	n, src, dst int
	op          verbs.WROpcode
	to          []*loose // ends that it may reach
	came        int
}

type looseReceive struct{ at, n int }

// content returns byte i of message id of a sender.
func content(from *loose, id uint64, i int) byte {
	return byte(id)*31 + byte(i*7) + byte(i>>8) + from.e.gid[15]
}

// looseWorld is the state of the test.
type looseWorld struct {
	w    *world
	ends [2]*loose
	ahs  map[[2]int]verbs.AH // to the peer (0), to itself (1), to the group (2)
	ud   bool
}

// send posts one message from ends[i].
func (x *looseWorld) send(t *rapid.T, i int) {
	from, peer := x.ends[i], x.ends[1-i]
	if len(from.sent) >= 200 || from.src+looseMax > looseDstAt || from.dst+looseMax > looseRecvAt {
		t.Skip("full")
	}
	m := looseMessage{n: rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, looseMax)).Draw(t, "n"), src: from.src, dst: from.dst, op: verbs.WRSendWithImm}
	m.to = []*loose{peer}
	id := uint64(len(from.sent))
	for j := range m.n {
		from.e.data()[m.src+j] = content(from, id, j)
	}
	wr := from.e.send(id, m.op, verbs.SendSignaled, from.e.sge(m.src, m.n/2), from.e.sge(m.src+m.n/2, m.n-m.n/2))
	wr.SetImm(uint32(id))
	from.src += m.n
	switch {
	case x.ud:
		to := rapid.IntRange(0, 2).Draw(t, "to")
		qpn, key := peer.e.qp.Num(), uint32(testQKey)
		switch to {
		case 1:
			m.to, qpn = []*loose{from}, from.e.qp.Num()
		case 2:
			m.to, qpn = []*loose{from, peer}, verbs.McastQPN
		}
		if rapid.IntRange(0, 9).Draw(t, "wrong key") == 0 {
			m.to, key = nil, key+1
		}
		wr.SetUD(x.ahs[[2]int{i, to}].Handle(), qpn, key)
	case rapid.Bool().Draw(t, "write"):
		m.op = verbs.WRRDMAWriteWithImm
		wr.Opcode = m.op
		wr.SetRDMA(peer.e.at(m.dst), peer.e.mr.RKey())
		from.dst += m.n
	}
	from.sent = append(from.sent, m)
	from.e.mustPost(wr)
}

// post posts one receive to ends[i], which may be too short for many messages.
func (x *looseWorld) post(t *rapid.T, i int) {
	l := x.ends[i]
	n := rapid.SampledFrom([]int{0, 30, 300, looseMax + grhLen}).Draw(t, "size")
	if l.recvs+n > looseEnd || len(l.sizes)-len(l.done) >= 200 || len(l.sizes) >= 200 {
		t.Skip("full")
	}
	l.e.recv(uint64(len(l.sizes)), l.e.sge(l.recvs, n/3), l.e.sge(l.recvs+n/3, n-n/3))
	l.sizes = append(l.sizes, looseReceive{l.recvs, n})
	l.recvs += n
}

// collect polls ends[i], checks the results, and overwrites the buffers of completed sends, which
// belong to their owner again.
func (x *looseWorld) collect(t *rapid.T, i int) {
	l := x.ends[i]
	for _, c := range l.e.poll(l.e.scq) {
		if c.WRID != uint64(l.polled) || c.Status != verbs.WCSuccess {
			t.Fatalf("send %d completed as %d %v; an unreliable send completes in order, with success", l.polled, c.WRID, c.Status)
		}
		m := &l.sent[l.polled]
		clear(l.e.data()[m.src : m.src+m.n])
		l.polled++
	}
	for _, c := range l.e.poll(l.e.rcq) {
		if err := x.arrived(l, &c); err != nil {
			t.Fatalf("end %d: %v: %+v", i, err, c)
		}
	}
}

// arrived checks one receive.
func (x *looseWorld) arrived(l *loose, c *verbs.WC) error {
	if c.Status != verbs.WCSuccess || int(c.WRID) != len(l.done) {
		return fmt.Errorf("receives complete in order, with success; want id %d", len(l.done))
	}
	l.done[c.WRID]++
	r := l.sizes[c.WRID]
	from := x.ends[0] // the peer; for datagrams see the source address: both ends may use the same numbers
	if x.ud {
		if src := l.e.data()[r.at+32 : r.at+36]; [4]byte(src) != from.e.gid.Addr().As4() {
			from = x.ends[1]
		}
	} else if from == l {
		from = x.ends[1]
	}
	id := uint64(c.Imm())
	if id >= uint64(len(from.sent)) {
		return fmt.Errorf("message %d was never sent", id)
	}
	m := &from.sent[id]
	mine := false
	for _, to := range m.to {
		mine = mine || to == l
	}
	skip, at := 0, r.at
	if x.ud {
		skip = grhLen
	}
	if m.op == verbs.WRRDMAWriteWithImm {
		at, r.n = m.dst, looseMax
	}
	switch {
	case c.SrcQP != from.e.qp.Num():
		return fmt.Errorf("the source is %v", from.e.qp)
	case !mine:
		return fmt.Errorf("message %d is not for this end", id)
	case int(c.ByteLen) != skip+m.n, int(c.ByteLen) > r.n:
		return fmt.Errorf("message of %d bytes in a receive of %d", m.n, r.n)
	}
	for j, b := range l.e.data()[at+skip : at+skip+m.n] {
		if b != content(from, id, j) {
			return fmt.Errorf("byte %d of message %d is another's", j, id)
		}
	}
	m.came++
	return nil
}

// TestRandomUnreliableTraffic: on any link, every received message is one that was sent, complete
// and to this end; every datagram that arrives is received or counted; and on a perfect link with
// room no message is missing.
func TestRandomUnreliableTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &looseWorld{ahs: map[[2]int]verbs.AH{}, ud: rapid.Bool().Draw(t, "ud")}
		kind := verbs.QPTUC
		if x.ud {
			kind = verbs.QPTUD
		}
		x.w = newWorld(t, options{
			kind: kind, seed: rapid.Uint64().Draw(t, "seed"), attr: func(a *verbs.QPAttr) { a.QKey = testQKey },
			mtu: rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096}).Draw(t, "mtu"),
			cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2},
		})
		l := fabric.Link{
			Loss:    rapid.SampledFrom([]float64{0, 0.02, 0.2}).Draw(t, "loss"),
			Dup:     rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "dup"),
			Reorder: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "reorder"),
			Delay:   rapid.SampledFrom([]time.Duration{0, 2 * time.Microsecond}).Draw(t, "delay"),
		}
		x.w.fab.SetAll(l)
		for i, e := range []*peer{x.w.a, x.w.b} {
			x.ends[i] = &loose{e: e, src: looseSrcAt, dst: looseDstAt, recvs: looseRecvAt, done: map[uint64]int{}}
			mem.Poison(e.data())
			if x.ud {
				must.Do(t, e.qp.AttachMcast(testGroup, 0))
				for to, gid := range []verbs.GID{[2]*peer{x.w.b, x.w.a}[i].gid, e.gid, testGroup} {
					x.ahs[[2]int{i, to}] = e.handle(gid)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send a":    func(t *rapid.T) { x.send(t, 0) },
			"send b":    func(t *rapid.T) { x.send(t, 1) },
			"post a":    func(t *rapid.T) { x.post(t, 0) },
			"post b":    func(t *rapid.T) { x.post(t, 1) },
			"collect a": func(t *rapid.T) { x.collect(t, 0) },
			"collect b": func(t *rapid.T) { x.collect(t, 1) },
			"step":      func(*rapid.T) { x.w.fab.Step() },
			"advance": func(*rapid.T) {
				if at, ok := x.w.fab.NextEvent(); ok {
					x.w.fab.AdvanceTo(at)
				}
			},
		})
		x.w.settle()
		for i, l := range x.ends {
			x.collect(t, i)
			if l.polled != len(l.sent) {
				t.Fatalf("end %d: %d of %d sends completed", i, l.polled, len(l.sent))
			}
			if at := mem.Poisoned(l.e.data()[l.recvs:]); at >= 0 {
				t.Fatalf("end %d: a byte behind the receives was written, at %d", i, at)
			}
		}
		x.balance(t, l.Dup == 0, l.Loss+l.Reorder+l.Dup == 0)
	})
}

// balance compares the received and counted messages with those that crossed the link.
func (x *looseWorld) balance(t *rapid.T, once, perfect bool) {
	for i, l := range x.ends {
		for id, m := range l.sent {
			if once && m.came > len(m.to) {
				t.Fatalf("message %d of end %d arrived %d times on a link that doubles nothing", id, i, m.came)
			}
		}
		s, c := l.e.qp.dev.p.Stats(), l.e.counters()
		if got := uint64(len(l.done)) + c.NoReceive + c.TooLong; perfect && !x.ud && got != uint64(len(x.ends[1-i].sent)) {
			t.Fatalf("end %d: %d messages of %d are accounted for: %d received, %+v", i, got, len(x.ends[1-i].sent), len(l.done), c)
		}
		if x.ud {
			if got := uint64(len(l.done)) + c.NoReceive + c.TooLong + c.QKeyViolations; got != s.RxPackets || c.NoQueuePair+c.Invalid > 0 {
				t.Fatalf("end %d: %d datagrams came, %d are accounted for: %d received, %+v", i, s.RxPackets, got, len(l.done), c)
			}
		}
	}
}
