package soft

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// newUC makes a world with a connected pair of UC queue pairs.
func newUC(t tb, o options) *world {
	t.Helper()
	o.kind = verbs.QPTUC
	return newWorld(t, o)
}

// write makes a request with n bytes at off, for the same offset at the peer.
func (e *peer) write(id uint64, op verbs.WROpcode, to *peer, off, n int) request {
	wr := e.send(id, op, verbs.SendSignaled, e.sge(off, n/3), e.sge(off+n/3, n-n/3))
	wr.SetRDMA(to.at(off), to.mr.RKey())
	wr.SetImm(uint32(id))
	return wr
}

// rest waits until the packets that were sent to the peer are consumed: a WRITE has no other sign
// of arrival.
func (e *peer) rest() {
	from := e.w.a
	for out := int64(1); out > 0; {
		e.qp.dev.exclusive(func() { out = from.qp.pace.out.Load() })
	}
}

// TestUCMovesTheBytes: the four operations of UC, in all lengths.
func TestUCMovesTheBytes(t *testing.T) {
	for _, o := range []options{{mtu: verbs.MTU256}, {mtu: verbs.MTU4096}, {jumbo: true}, {real: true}, {real: true, jumbo: true}} {
		w := newUC(t, o)
		for i, n := range append(sizes, maxUC-1, maxUC, maxUC+1) {
			for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm} {
				id := uint64(i)
				fill(w.a.data()[:n], byte(i)+byte(op))
				mem.Poison(w.b.data())
				wr := w.a.write(id, op, w.b, 0, n)
				if op != verbs.WRRDMAWrite {
					w.b.recv(id, w.b.sge(0, 40000), w.b.sge(40000, 60000))
				}
				w.a.mustPost(wr)
				s := w.a.want(w.a.scq, 1)
				w.a.ok(s, id)
				if s[0].Opcode != op.Completion() {
					t.Fatalf("%v completes as %v", op, s[0].Opcode)
				}
				if op != verbs.WRRDMAWrite {
					r := w.b.want(w.b.rcq, 1)
					w.b.ok(r, id)
					if r[0].ByteLen != uint32(n) || (r[0].Flags == verbs.WCWithImm) != op.HasImm() || r[0].Flags&verbs.WCWithGRH != 0 {
						t.Fatalf("%v of %d bytes received as %+v", op, n, r[0])
					}
				}
				w.b.rest()
				if !bytes.Equal(w.b.data()[:n], w.a.data()[:n]) {
					t.Fatalf("%d bytes differ after %v", n, op)
				}
				if at := mem.Poisoned(w.b.data()[n:]); at >= 0 {
					t.Fatalf("%v of %d bytes touched byte %d behind its end", op, n, at)
				}
			}
		}
	}
}

// TestUCDropsAMessageWithAGap: one packet of the second of three messages is lost, duplicated or
// late. The message is dropped silently; its receive takes the third.
func TestUCDropsAMessageWithAGap(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm} {
		for packet := uint64(1); packet <= 4; packet++ {
			for name, rule := range map[string]fabric.Rule{"lost": {Drop: true}, "late": {Delay: 1000}, "doubled": {Dup: true}} {
				t.Run(fmt.Sprintf("%v/packet %d %s", op, packet, name), func(t *testing.T) {
					w := newUC(t, options{})
					rule.From, rule.To = 4+packet, 4+packet
					w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{rule}})
					fill(w.a.data()[:20000], 3)
					var wrs []request
					for i := range 3 {
						w.b.recv(uint64(i), w.b.sge(50000*(i+1), 4000))
						wrs = append(wrs, w.a.write(uint64(i), op, w.b, 4000*i, 4000))
					}
					w.a.mustPost(wrs...)
					w.a.ok(w.a.want(w.a.scq, 3), 0)
					n := 2
					if name == "doubled" && (packet == 1 || packet == 4) {
						n = 3 // a repeated First begins a new message, a repeated Last follows a complete one
					}
					got := w.b.want(w.b.rcq, n)
					w.b.ok(got, 0)
					if got[0].Imm() != 0 || got[n-1].Imm() != 2 {
						t.Fatalf("received %+v, want the first and the last message", got)
					}
					if at := 50000 * n; op == verbs.WRSendWithImm && !bytes.Equal(w.b.data()[at:at+4000], w.a.data()[8000:12000]) {
						t.Fatal("the last message has other bytes")
					}
					if s := w.b.counters().Sequence; s == 0 {
						t.Fatal("packets out of sequence must be counted")
					}
					if w.a.state() != verbs.QPSRTS || w.b.state() != verbs.QPSRTS {
						t.Fatalf("states %v and %v, a gap changes none", w.a.state(), w.b.state())
					}
				})
			}
		}
	}
}

// TestUCTakesARepeatedMessageTwice: UC does not detect duplicates of whole messages.
func TestUCTakesARepeatedMessageTwice(t *testing.T) {
	w := newUC(t, options{})
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{{Dup: true}}})
	w.b.recv(0, w.b.sge(0, 100))
	w.b.recv(1, w.b.sge(100, 100))
	w.a.mustPost(w.a.send(5, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 50)))
	w.a.ok(w.a.want(w.a.scq, 1), 5)
	w.b.ok(w.b.want(w.b.rcq, 2), 0)
}

// TestUCDropsWhatItCannotExecute: only a counter shows it, and the next message arrives.
func TestUCDropsWhatItCannotExecute(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(w *world) request
		want Counters
	}{
		{"no receive", func(w *world) request { return w.a.write(1, verbs.WRSend, w.b, 0, 3000) }, Counters{NoReceive: 1, Sequence: 2}},
		{"no receive for immediate", func(w *world) request { return w.a.write(1, verbs.WRRDMAWriteWithImm, w.b, 0, 8) }, Counters{NoReceive: 1}},
		{"receive too short", func(w *world) request {
			w.b.recv(7, w.b.sge(0, 2000))
			return w.a.write(1, verbs.WRSend, w.b, 0, 3000)
		}, Counters{TooLong: 1, Sequence: 1}},
		{"wrong key", func(w *world) request {
			wr := w.a.write(1, verbs.WRRDMAWrite, w.b, 0, 3000)
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey()+1)
			return wr
		}, Counters{Access: 1, Sequence: 2}},
		{"outside the region", func(w *world) request {
			wr := w.a.write(1, verbs.WRRDMAWrite, w.b, 0, 3000)
			wr.SetRDMA(w.b.at(len(w.b.data())-2999), w.b.mr.RKey())
			return wr
		}, Counters{Access: 1, Sequence: 2}},
		{"no permission of the queue pair", func(w *world) request {
			must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState|verbs.QPMAccessFlags))
			return w.a.write(1, verbs.WRRDMAWrite, w.b, 0, 8)
		}, Counters{Invalid: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newUC(t, options{})
			mem.Poison(w.b.data())
			w.a.mustPost(c.make(w))
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			if got := w.b.poll(w.b.rcq); len(got) > 0 {
				t.Fatalf("the receiver is told nothing, got %+v", got)
			}
			if got := w.b.counters(); got != c.want {
				t.Fatalf("counted as %+v, want %+v", got, c.want)
			}
			if at := mem.Poisoned(w.b.data()[2000:]); at >= 0 {
				t.Fatalf("byte %d was written", 2000+at)
			}
			w.b.recv(7, w.b.sge(0, 4000))
			w.a.mustPost(w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 2000)))
			w.b.ok(w.b.want(w.b.rcq, 1), 7)
			if ev := w.b.events(); len(ev) > 0 {
				t.Fatalf("events %v, want none", ev)
			}
		})
	}
}

// TestBadReceiveEndsAnUnreliableQueuePair: a receive with invalid elements is its owner's fault:
// it completes with the error, the rest is flushed.
func TestBadReceiveEndsAnUnreliableQueuePair(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD} {
		w := newWorld(t, options{kind: kind})
		bad := w.b.sge(0, 200)
		bad.LKey++
		w.b.recv(1, bad)
		w.b.recv(2, w.b.sge(0, 200))
		wr := w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 100))
		if kind == verbs.QPTUD {
			wr.SetUD(w.a.handle(w.b.gid).Handle(), w.b.qp.Num(), 0)
		}
		w.a.mustPost(wr)
		w.a.ok(w.a.want(w.a.scq, 1), 1)
		if got := statuses(w.b.poll(w.b.rcq)); got != "1:LOC_PROT_ERR 2:WR_FLUSH_ERR " {
			t.Fatalf("%v: receives complete as %q", kind, got)
		}
		if w.b.state() != verbs.QPSErr || w.a.state() != verbs.QPSRTS {
			t.Fatalf("%v: states %v at the receiver, %v at the sender; want ERR and RTS", kind, w.b.state(), w.a.state())
		}
	}
}

// TestUCSharedReceiveIsNotKeptByADroppedMessage: the receive of a dropped message, if taken from
// a shared queue, completes with an error at once and once, because its queue pair may never get
// another message. The queue pair continues.
func TestUCSharedReceiveIsNotKeptByADroppedMessage(t *testing.T) {
	for _, c := range []struct {
		name string
		rule fabric.Rule
		n    int // bytes of the receives
		want string
	}{
		{"a gap, then the next message", fabric.Rule{Opcodes: []wire.Opcode{wire.UCSendMiddle}, To: 1, Drop: true}, 4000, "1:REM_INV_REQ_ERR 2:SUCCESS "},
		{"cut short by the next message", fabric.Rule{Opcodes: []wire.Opcode{wire.UCSendLast}, To: 1, Drop: true}, 4000, "1:REM_INV_REQ_ERR 2:SUCCESS "},
		{"too long in the end", fabric.Rule{}, 3500, "1:REM_INV_REQ_ERR 2:SUCCESS "},
		{"too long at once", fabric.Rule{}, 1000, ""}, // takes no receive
		{"nothing dropped", fabric.Rule{}, 4000, "1:SUCCESS 2:SUCCESS "},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{kind: verbs.QPTUC, apart: true})
			s := w.b.newSRQ(verbs.SRQAttr{MaxWR: 4, MaxSGE: 1})
			q := must.Get(w.b.pd.CreateQP(&verbs.QPInitAttr{SendCQ: w.b.scq, RecvCQ: w.b.rcq, Type: verbs.QPTUC, SRQ: s}))(t)
			must.Do(t, w.b.qp.Close())
			w.b.qp = q.(*queuePair)
			w.before = append(w.before, q, s)
			w.connect(options{mtu: verbs.MTU1024, access: allAccess})
			for id := uint64(1); id <= 2; id++ {
				addr := w.b.alloc(verbs.SizeofRecvWR)
				wr, _ := mem.At[verbs.RecvWR](w.b.wrs, addr)
				*wr = verbs.RecvWR{WRID: id, NumSGE: 1, SGList: w.b.list([]verbs.SGE{w.b.sge(int(id)*4096, c.n)})}
				if _, err := verbs.PostSRQRecv(s, addr, 1); err != nil {
					t.Fatal(err)
				}
			}
			if c.rule.Drop {
				w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{c.rule}})
			}
			fill(w.a.data()[:8000], 5)
			w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 4000)), w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(4000, 3000)))
			w.a.ok(w.a.want(w.a.scq, 2), 1)
			if got := statuses(w.b.poll(w.b.rcq)); got != c.want {
				t.Fatalf("receives complete %q, want %q", got, c.want)
			}
			if c.want != "" && !bytes.Equal(w.b.data()[8192:8192+3000], w.a.data()[4000:7000]) {
				t.Fatal("the second message has other bytes")
			}
			if s := w.b.state(); s != verbs.QPSRTS {
				t.Fatalf("the queue pair is in %v: a dropped message changes no state", s)
			}
		})
	}
}
