package soft

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// TestSendQueueError: a request that fails locally completes with its status. The following
// requests and those posted in SQE are flushed, receives continue, and Modify returns the queue
// pair to RTS.
func TestSendQueueError(t *testing.T) {
	badKey := func(w *world, wr request) request {
		s := w.a.sge(0, 100)
		s.LKey++
		wr.NumSGE, wr.SGList = 1, w.a.list([]verbs.SGE{s})
		return wr
	}
	for _, c := range []struct {
		name string
		kind verbs.QPType
		bad  func(w *world, wr request) request
		want string
	}{
		{"UC wrong key", verbs.QPTUC, badKey, "LOC_PROT_ERR"},
		{"UC too long", verbs.QPTUC, func(w *world, wr request) request {
			w.a.ctx.dev.cfg.Limits.MaxMsgSize = 5000
			wr.NumSGE, wr.SGList = 1, w.a.list([]verbs.SGE{w.a.sge(0, 5001)})
			return wr
		}, "LOC_LEN_ERR"},
		{"UC wrong key in the middle", verbs.QPTUC, func(w *world, wr request) request {
			s := w.a.sge(0, 100)
			s.LKey++
			wr.NumSGE, wr.SGList = 2, w.a.list([]verbs.SGE{w.a.sge(0, 2000), s})
			return wr
		}, "LOC_PROT_ERR"},
		{"UD wrong key", verbs.QPTUD, badKey, "LOC_PROT_ERR"},
		{"UD too long", verbs.QPTUD, func(w *world, wr request) request {
			wr.NumSGE, wr.SGList = 1, w.a.list([]verbs.SGE{w.a.sge(0, 4097)})
			return wr
		}, "LOC_LEN_ERR"},
		{"UD closed address handle", verbs.QPTUD, func(w *world, wr request) request {
			h := must.Get(w.a.pd.CreateAH(&verbs.AHAttr{DGID: w.b.gid, Port: 1}))(t)
			wr.SetUD(h.Handle(), w.b.qp.Num(), testQKey)
			must.Do(t, h.Close())
			return wr
		}, "LOC_QP_OP_ERR"},
		{"UD no address handle", verbs.QPTUD, func(w *world, wr request) request {
			wr.SetUD(0, w.b.qp.Num(), testQKey)
			return wr
		}, "LOC_QP_OP_ERR"},
		{"UD address handle of another domain", verbs.QPTUD, func(w *world, wr request) request {
			pd := must.Get(w.a.ctx.AllocPD())(t)
			h := must.Get(pd.CreateAH(&verbs.AHAttr{DGID: w.b.gid, Port: 1}))(t)
			w.closing(h)
			w.closing(pd)
			wr.SetUD(h.Handle(), w.b.qp.Num(), testQKey)
			return wr
		}, "LOC_QP_OP_ERR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{kind: c.kind, attr: func(a *verbs.QPAttr) { a.QKey = testQKey }, mtu: verbs.MTU1024})
			ahs := map[*peer]verbs.AH{w.a: w.b.handle(w.a.gid), w.b: w.a.handle(w.b.gid)}
			message := func(from, to *peer, id uint64) request {
				wr := from.send(id, verbs.WRSend, 0, from.sge(0, 100))
				if c.kind == verbs.QPTUD {
					wr.SetUD(ahs[to].Handle(), to.qp.Num(), testQKey)
				}
				return wr
			}
			for i := range uint64(3) {
				w.a.recv(i, w.a.sge(5000, 4000))
				w.b.recv(i, w.b.sge(5000, 4000))
			}
			w.a.mustPost(message(w.a, w.b, 1), c.bad(w, message(w.a, w.b, 2)), message(w.a, w.b, 3), message(w.a, w.b, 4))
			want := "2:" + c.want + " 3:WR_FLUSH_ERR 4:WR_FLUSH_ERR "
			w.settle()
			if got := statuses(w.a.poll(w.a.scq)); got != want {
				t.Fatalf("completions %q, want %q", got, want)
			}
			if w.a.state() != verbs.QPSSQE {
				t.Fatalf("state %v, want SQE", w.a.state())
			}
			w.a.mustPost(message(w.a, w.b, 5))
			w.settle()
			if got := statuses(w.a.poll(w.a.scq)); got != "5:WR_FLUSH_ERR " {
				t.Fatalf("posted in SQE completes as %q, want a flush", got)
			}
			w.b.mustPost(message(w.b, w.a, 1))
			w.a.ok(w.a.want(w.a.rcq, 1), 0)
			w.a.mustPost(message(w.a, w.b, 6)) // not yet taken off the doorbell list
			must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
			last := message(w.a, w.b, 7)
			last.Flags = verbs.SendSignaled
			w.a.mustPost(last)
			w.settle()
			if got := statuses(w.a.poll(w.a.scq)); got != "6:WR_FLUSH_ERR 7:SUCCESS " {
				t.Fatalf("behind the recovery completes %q, want what was posted before it flushed", got)
			}
			w.b.ok(w.b.want(w.b.rcq, 2), 0) // messages 1 and 7
		})
	}
}

// TestUnreliableRefusalsAtPost: an opcode that the queue pair's type does not execute is refused
// by posting, and the requests before it are posted.
func TestUnreliableRefusalsAtPost(t *testing.T) {
	for kind, ops := range map[verbs.QPType][]verbs.WROpcode{
		verbs.QPTUC: {verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRTSO},
		verbs.QPTUD: {verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRBindMW, verbs.WRLocalInv, verbs.WRSendWithInv},
	} {
		w := newWorld(t, options{kind: kind})
		for _, op := range ops {
			ok, bad := w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)), w.a.send(2, op, verbs.SendSignaled, w.a.sge(0, 8))
			for _, wr := range []request{ok, bad} {
				if kind == verbs.QPTUD {
					wr.SetUD(w.a.handle(w.b.gid).Handle(), w.b.qp.Num(), 0)
				}
			}
			if n, err := w.a.post(ok, bad); n != 1 || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%v on %v: %d accepted, %v; want 1 and EINVAL", op, kind, n, err)
			}
			w.a.ok(w.a.want(w.a.scq, 1), 1)
		}
	}
}

// TestCompletedSendsBufferIsTheOwners: a completion returns buffer and region to the owner
// although the receiver has not run; the receiver gets the original data.
func TestCompletedSendsBufferIsTheOwners(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD} {
		w := newWorld(t, options{kind: kind})
		const n = 900
		extra := must.Get(w.a.pd.RegMR(w.a.at(0), n, w.a.at(0), 0))(t)
		fill(w.a.data()[:n], 7)
		sent := bytes.Clone(w.a.data()[:n])
		w.b.recv(1, w.b.sge(0, 2000))
		wr := w.a.send(1, verbs.WRSend, verbs.SendSignaled, verbs.SGE{Addr: w.a.at(0), Length: n, LKey: extra.LKey()})
		skip := 0
		if kind == verbs.QPTUD {
			skip = grhLen
			wr.SetUD(w.a.handle(w.b.gid).Handle(), w.b.qp.Num(), 0)
		}
		w.a.mustPost(wr)
		w.a.qp.dev.p.Exclusive(func() { w.a.qp.dev.Progress(0) }) // only this engine
		w.a.ok(w.a.poll(w.a.scq), 1)
		clear(w.a.data()[:n])
		must.Do(t, extra.Close())
		w.b.ok(w.b.want(w.b.rcq, 1), 1)
		if !bytes.Equal(w.b.data()[skip:skip+n], sent) {
			t.Fatalf("%v: the receiver got what was written after the completion", kind)
		}
	}
}

// TestUnreliableQueuePairDrains: in SQD the message in progress is finished, the others wait, and
// the event is raised once.
func TestUnreliableQueuePairDrains(t *testing.T) {
	w := newUC(t, options{mtu: verbs.MTU256})
	const long = 256 * emitPerProgress * 3 / 2 // takes two Progress calls
	w.b.recv(1, w.b.sge(0, long))
	w.b.recv(2, w.b.sge(0, long))
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, long)), w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.a.qp.dev.p.Exclusive(func() { w.a.qp.dev.Progress(0) })
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD, EnSQDAsyncNotify: true}, verbs.QPMState|verbs.QPMEnSQDAsyncNotify))
	w.settle()
	w.a.ok(w.a.poll(w.a.scq), 1)
	w.b.ok(w.b.want(w.b.rcq, 1), 1)
	if ev := w.a.events(); len(ev) != 1 || ev[0] != verbs.EventSQDrained {
		t.Fatalf("events %v, want SQ_DRAINED once", ev)
	}
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
	w.b.ok(w.b.want(w.b.rcq, 1), 2)
}

// TestSlowReceiverBoundsWhatIsOnItsWay: while the receiver takes no packets, only paceHigh of
// them are in flight; when it takes them, all arrive.
func TestSlowReceiverBoundsWhatIsOnItsWay(t *testing.T) {
	for _, real := range []bool{false, true} {
		w := newWorld(t, options{kind: verbs.QPTUD, real: real, cap: verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}, cqe: 2048})
		slow := &sluggish{}
		gid := verbs.GIDFromAddr(rogueAddr)
		port := must.Get(w.fab.Attach(gid, "slow", slow))(t)
		defer port.Detach()
		port.Exclusive(func() { slow.port = port })
		ah := w.a.handle(gid)
		const n = 1000
		var wrs []request
		for i := range uint64(n) {
			wrs = append(wrs, w.a.datagram(i, ah, 77, verbs.SendSignaled, w.a.sge(0, 4096)))
		}
		w.a.mustPost(wrs...)
		if !real {
			w.settle()
		}
		w.a.ok(w.a.want(w.a.scq, paceHigh), 0)
		port.Exclusive(func() { slow.awake = true })
		rest := w.a.want(w.a.scq, n-paceHigh)
		w.a.ok(rest, paceHigh)
	}
}

// rogueAddr is the address of endpoints that are not devices.
var rogueAddr = netip.MustParseAddr("10.0.0.9")

// sluggish is an endpoint that leaves packets in its inbox until awake is set.
type sluggish struct {
	port  *fabric.Port
	awake bool
}

func (s *sluggish) Progress(time.Duration) (time.Duration, bool) {
	if s.awake {
		for k := s.port.Take(); k != nil; k = s.port.Take() {
			k.Release()
		}
	}
	return 0, false
}
