package soft

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// Rule: one Execute that posts to several queue pairs has all of them worked on, also when the
// engine is idle.
func TestTurnRunsEveryQueuePairItPostsTo(t *testing.T) {
	w := newWorld(t, options{real: true})
	const more = 3
	ends := []*peer{w.a}
	for range more {
		a, b := *w.a, *w.b
		a.qp, b.qp = a.newQP(w.a.qp.granted), b.newQP(w.b.qp.granted)
		w.before = append(w.before, a.qp, b.qp)
		attr := verbs.QPAttr{
			PathMTU: verbs.MTU1024, AccessFlags: allAccess, Port: 1,
			MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		}
		a.toRTS(attr, &b)
		b.toRTS(attr, &a)
		ends = append(ends, &a)
	}
	var turn verbs.IOBatch
	for i, e := range ends {
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		turn.Sends = append(turn.Sends, verbs.SendGroup{QP: e.qp, Head: wr.addr, Count: 1})
	}
	must.Do(t, w.a.ctx.Execute(&turn))
	done := map[uint64]bool{}
	for _, wc := range w.a.want(w.a.scq, len(ends)) {
		done[wc.WRID] = wc.Status == verbs.WCSuccess
	}
	for i := range ends {
		if !done[uint64(i)] {
			t.Errorf("request %d has not completed with success", i)
		}
	}
}

// Rule: a post that finds the engine running leaves the work to the goroutine that runs it.
func TestPostWhileTheEngineRuns(t *testing.T) {
	w := newWorld(t, options{real: true})
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.ctx.dev.exclusive(func() {
		w.a.mustPost(wr)
		if n := len(w.a.poll(w.a.scq)); n != 0 {
			t.Errorf("%d completions while the engine was held", n)
		}
	})
	w.a.ok(w.a.want(w.a.scq, 1), 1)
}

// Rule: a queue pair has at most one entry in the timer heap, however its deadline moves, and
// none after a reset; deadlines fire in order.
func TestTimersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &device{}
		qps := make([]*queuePair, 8)
		for i := range qps {
			qps[i] = &queuePair{dev: d}
		}
		at := map[*queuePair]time.Duration{} // the model: the due time of each
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			q := qps[rapid.IntRange(0, len(qps)-1).Draw(t, "queue pair")]
			when := time.Duration(rapid.IntRange(1, 50).Draw(t, "time, or above 40 to stop"))
			if when > 40 {
				d.timers.stop(q)
				delete(at, q)
			} else {
				q.setDeadline(when)
				if old, ok := at[q]; !ok || when < old {
					at[q] = when
				}
			}
			if len(d.timers) != len(at) {
				t.Fatalf("%d entries for %d queue pairs", len(d.timers), len(at))
			}
			for i, e := range d.timers {
				if e.q.timer != i+1 || at[e.q] != e.at {
					t.Fatalf("entry %d says place %d and time %d, want %d", i, e.q.timer, e.at, at[e.q])
				}
			}
		}
		for last := time.Duration(0); len(d.timers) > 0; {
			e := d.timers[0]
			if e.at < last {
				t.Fatalf("%d comes behind %d", e.at, last)
			}
			last = e.at
			d.timers.stop(e.q)
		}
	})
}

// pump posts and polls one kind of request repeatedly, with one reused IOBatch, as a reactor
// does.
type pump struct {
	w     *world
	turn  verbs.IOBatch
	depth int
	recv  bool
	rturn verbs.IOBatch
}

func newPump(w *world, depth int, op verbs.WROpcode, flags verbs.SendFlags, n int) *pump {
	p := &pump{w: w, depth: depth, recv: op == verbs.WRSend || op == verbs.WRRDMAWriteWithImm}
	var first, last request
	var ah verbs.AH
	room := n // of a receive
	if w.a.kind == verbs.QPTUD {
		ah, room = w.a.handle(w.b.gid), n+grhLen
	}
	for i := range depth {
		f := flags
		if i == depth-1 {
			f |= verbs.SendSignaled
		}
		wr := w.a.send(uint64(i), op, f, w.a.sge(0, n))
		switch op {
		case verbs.WRAtomicFetchAndAdd:
			wr.SetFetchAdd(w.b.at(0), w.b.mr.RKey(), 1)
		case verbs.WRSend:
			if ah != nil {
				wr.SetUD(ah.Handle(), w.b.qp.Num(), 0)
			}
		default:
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		}
		if i == 0 {
			first = wr
		} else {
			last.Next = wr.addr
		}
		last = wr
	}
	buf, _ := mem.Array[verbs.WC](w.a.wcs, w.a.wcs.Addr(), 64)
	p.turn.Sends = []verbs.SendGroup{{QP: w.a.qp, Head: first.addr, Count: depth}}
	p.turn.Polls = []verbs.PollGroup{{CQ: w.a.scq, WC: buf}}
	if p.recv {
		var head, prev *verbs.RecvWR
		var headAt uint64
		for range depth {
			addr := w.b.alloc(verbs.SizeofRecvWR)
			wr, _ := mem.At[verbs.RecvWR](w.b.wrs, addr)
			*wr = verbs.RecvWR{NumSGE: 1, SGList: w.b.list([]verbs.SGE{w.b.sge(0, room)})}
			if head == nil {
				head, headAt = wr, addr
			} else {
				prev.Next = addr
			}
			prev = wr
		}
		rbuf, _ := mem.Array[verbs.WC](w.b.wcs, w.b.wcs.Addr(), 256)
		p.rturn.Recvs = []verbs.RecvGroup{{QP: w.b.qp, Head: headAt, Count: depth}}
		p.rturn.Polls = []verbs.PollGroup{{CQ: w.b.rcq, WC: rbuf}}
	}
	return p
}

// run does one round: it posts, and polls until the signaled request has completed.
func (p *pump) run() {
	if p.recv {
		if p.w.b.ctx.Execute(&p.rturn) != nil || p.rturn.Recvs[0].Errno != 0 {
			panic("receives refused")
		}
	}
	s := p.turn.Sends
	if p.w.a.ctx.Execute(&p.turn) != nil || s[0].Errno != 0 {
		panic(s[0].Errno.Error())
	}
	p.turn.Sends = nil
	for p.turn.Polls[0].N == 0 {
		if p.w.fab.Virtual() {
			p.w.step()
		}
		if p.w.a.ctx.Execute(&p.turn) != nil {
			panic("closed")
		}
	}
	if wc := &p.turn.Polls[0].WC[0]; wc.Status != verbs.WCSuccess {
		panic(wc.Status.String())
	}
	p.turn.Sends = s
}

// pumpCap returns the capacities of a queue pair for depth outstanding requests.
func pumpCap(depth int) verbs.QPCap {
	n := uint32(max(depth, 64))
	return verbs.QPCap{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 256}
}

var pumpCases = []struct {
	name  string
	depth int
	op    verbs.WROpcode
	flags verbs.SendFlags
	n     int
}{
	{"write/8/sync", 1, verbs.WRRDMAWrite, 0, 8},
	{"write/8/deep32", 32, verbs.WRRDMAWrite, 0, 8},
	{"write/8/deep128", 128, verbs.WRRDMAWrite, 0, 8},
	{"write/8/inline32", 32, verbs.WRRDMAWrite, verbs.SendInline, 8},
	{"write/4096/sync", 1, verbs.WRRDMAWrite, 0, 4096},
	{"write/65536/deep16", 16, verbs.WRRDMAWrite, 0, 65536},
	{"write/65536/sync", 1, verbs.WRRDMAWrite, 0, 65536},
	{"send/8/sync", 1, verbs.WRSend, 0, 8},
	{"send/8/inline32", 32, verbs.WRSend, verbs.SendInline, 8},
	{"send/8/deep32", 32, verbs.WRSend, 0, 8},
	{"read/8/sync", 1, verbs.WRRDMARead, 0, 8},
	{"read/65536/sync", 1, verbs.WRRDMARead, 0, 65536},
	{"fetchadd/sync", 1, verbs.WRAtomicFetchAndAdd, 0, 8},
}

// looseCases are the cases of the unreliable services.
var looseCases = []struct {
	name  string
	kind  verbs.QPType
	depth int
	op    verbs.WROpcode
	n     int
}{
	{"uc/write/8/sync", verbs.QPTUC, 1, verbs.WRRDMAWrite, 8},
	{"uc/write/65536/sync", verbs.QPTUC, 1, verbs.WRRDMAWrite, 65536},
	{"uc/send/8/deep32", verbs.QPTUC, 32, verbs.WRSend, 8},
	{"ud/send/8/sync", verbs.QPTUD, 1, verbs.WRSend, 8},
	{"ud/send/8/deep32", verbs.QPTUD, 32, verbs.WRSend, 8},
	{"ud/send/4096/deep32", verbs.QPTUD, 32, verbs.WRSend, 4096},
}

func BenchmarkUnreliable(b *testing.B) {
	for _, c := range looseCases {
		b.Run(c.name, func(b *testing.B) {
			p := newPump(newWorld(b, options{kind: c.kind, real: true, jumbo: true}), c.depth, c.op, 0, c.n)
			b.SetBytes(int64(c.n * c.depth))
			b.ReportAllocs()
			for b.Loop() {
				p.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.depth), "ns/wr")
		})
	}
}

func BenchmarkRC(b *testing.B) {
	for _, c := range pumpCases {
		for _, jumbo := range []bool{true, false} {
			name := c.name + "/mtu4096"
			if jumbo {
				name = c.name + "/jumbo"
			} else if c.n <= 4096 {
				continue
			}
			b.Run(name, func(b *testing.B) {
				w := newWorld(b, options{real: true, jumbo: jumbo, cap: pumpCap(c.depth), mtu: map[bool]verbs.MTU{true: verbs.MTUJumbo, false: verbs.MTU4096}[jumbo]})
				p := newPump(w, c.depth, c.op, c.flags, c.n)
				b.SetBytes(int64(c.n * c.depth))
				b.ReportAllocs()
				for b.Loop() {
					p.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.depth), "ns/wr")
			})
		}
	}
}

// BenchmarkForeign is the first of BenchmarkRC with memory of the library and of the program.
func BenchmarkForeign(b *testing.B) {
	for _, c := range pumpCases[:5] {
		for _, foreign := range []bool{false, true} {
			b.Run(c.name+map[bool]string{false: "/own", true: "/foreign"}[foreign], func(b *testing.B) {
				p := newPump(newWorld(b, options{real: true, cap: pumpCap(c.depth), mtu: verbs.MTU4096, foreign: foreign}), c.depth, c.op, c.flags, c.n)
				for b.Loop() {
					p.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.depth), "ns/wr")
			})
		}
	}
}

func TestDataPathAllocatesNothing(t *testing.T) {
	for _, c := range pumpCases {
		t.Run(c.name, func(t *testing.T) {
			for _, foreign := range []bool{false, true} {
				p := newPump(newWorld(t, options{real: true, jumbo: true, cap: pumpCap(c.depth), foreign: foreign}), c.depth, c.op, c.flags, c.n)
				for range 100 {
					p.run() // pools grow
				}
				if n := testing.AllocsPerRun(200, p.run); n != 0 {
					t.Fatalf("%v allocations per round of post, execute and poll, want none; memory of the program: %t", n, foreign)
				}
			}
		})
	}
}

func TestUnreliablePathAllocatesNothing(t *testing.T) {
	for _, c := range looseCases {
		t.Run(c.name, func(t *testing.T) {
			p := newPump(newWorld(t, options{kind: c.kind, real: true, jumbo: true}), c.depth, c.op, 0, c.n)
			for range 100 {
				p.run() // pools grow
			}
			if n := testing.AllocsPerRun(200, p.run); n != 0 {
				t.Fatalf("%v allocations per round of post, send, receive and poll, want none", n)
			}
		})
	}
}
