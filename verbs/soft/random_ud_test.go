package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"pgregory.net/rapid"
)

// The memory of each end in the random test of the unreliable services. Every
// message and every receive has a place of its own.
const (
	looseSrcAt  = 0
	looseDstAt  = 1 << 18 // where the peer's WRITEs go
	looseRecvAt = 2 << 18
	looseEnd    = 3 << 18
	looseMax    = 3000 // bytes of a message
)

// loose is one end of the random test: what it sent and what it may receive.
type loose struct {
	e        *peer
	src, dst int // bump offsets
	recvs    int
	sent     []looseMessage // by id
	polled   int            // sends that completed
	sizes    []looseReceive // by id
	done     map[uint64]int // receives that completed
}

type looseMessage struct {
	n, src, dst int
	op          verbs.WROpcode
	to          []*loose // that it may reach
	came        int
}

type looseReceive struct{ at, n int }

// content is the byte at i of message id of a sender.
func content(from *loose, id uint64, i int) byte {
	return byte(id)*31 + byte(i*7) + byte(i>>8) + from.e.gid[15]
}

// looseWorld is the test's state.
type looseWorld struct {
	w    *world
	ends [2]*loose
	ahs  map[[2]int]verbs.AH // to the peer (0), oneself (1), the group (2)
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

// collect polls ends[i], checks what came, and spoils the buffers of sends that
// have completed: they are their owner's.
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
	from := x.ends[0] // the peer, but datagrams tell: numbers may be the same at both
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

// TestRandomUnreliableTraffic: whatever the link does, what arrives is a
// message that was sent, whole and to this end; every datagram that arrives is
// received or counted; and on a perfect link with room nothing is missing.
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
				must(t, e.qp.AttachMcast(testGroup, 0))
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

// balance compares what was received and counted with what came over the link.
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
