package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// xrcWorld is a world in which a's XRC_SEND queue pair is connected to b's XRC_RECV one, which
// serves two shared receive queues: each with its own protection domain, region and completion
// queue.
type xrcWorld struct {
	*world
	send *queuePair
	dom  verbs.XRCD
	recv *xrcReceiver
	pds  []verbs.PD
	mrs  []verbs.MR
	cqs  []verbs.CQ
	srqs []*sharedQueue
	ends []verbs.Object // closed first
}

func newXRC(t tb) *xrcWorld {
	t.Helper()
	x := &xrcWorld{world: newWorld(t, options{apart: true})}
	var err error
	x.dom, err = x.b.ctx.OpenXRCD(-1, os.O_CREATE)
	must.Do(t, err)
	for range 2 {
		x.queue(x.dom, 16)
	}
	q := must.Get(x.dom.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv, UserData: 3}))(t)
	x.recv = q.(*xrcReceiver)
	init := verbs.QPInitAttr{SendCQ: x.a.scq, Type: verbs.QPTXRCSend, Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 9, MaxSendSGE: 4, MaxRecvSGE: 9, MaxInlineData: 64}}
	q = must.Get(x.a.pd.CreateQP(&init))(t)
	x.send = q.(*queuePair)
	must.Do(t, x.a.qp.Close())
	x.a.qp = x.send
	x.connect()
	t.Cleanup(func() {
		x.a.events()
		x.b.events()
		for _, o := range append(x.ends, x.recv) {
			must.Do(t, o.Close())
		}
		for i := range x.srqs {
			must.Do(t, x.srqs[i].Close())
		}
		must.Do(t, x.dom.Close())
		for i := range x.cqs {
			must.Do(t, x.cqs[i].Close())
			must.Do(t, x.mrs[i].Close())
			must.Do(t, x.pds[i].Close())
		}
	})
	return x
}

// queue makes a shared receive queue in a domain, with the objects it needs.
func (x *xrcWorld) queue(dom verbs.XRCD, cqe int) *sharedQueue {
	x.t.Helper()
	pd := must.Get(x.b.ctx.AllocPD())(x.t)
	mr := must.Get(pd.RegMR(x.b.arena.Addr(), uint64(x.b.arena.Len()), x.b.arena.Addr(), allAccess))(x.t)
	cq := must.Get(x.b.ctx.CreateCQ(cqe, nil, 0, 0))(x.t)
	s := must.Get(pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 8, MaxSGE: 2, XRCD: dom, CQ: cq}))(x.t)
	x.pds, x.mrs, x.cqs, x.srqs = append(x.pds, pd), append(x.mrs, mr), append(x.cqs, cq), append(x.srqs, s.(*sharedQueue))
	return s.(*sharedQueue)
}

// connect moves a's queue pair to RTS and b's to RTR, which suffices for receiving.
func (x *xrcWorld) connect() {
	x.t.Helper()
	a := verbs.QPAttr{PathMTU: verbs.MTU1024, RQPSN: 0x20, SQPSN: 0x10, AccessFlags: allAccess, Port: 1,
		MaxRdAtomic: 8, MaxDestRdAtomic: 8, MinRNRTimer: 1, Timeout: 8, RetryCnt: 7, RNRRetry: 7}
	step := func(q verbs.QP, s verbs.QPState, mask verbs.QPAttrMask) {
		x.t.Helper()
		a.State = s
		must.Do(x.t, q.Modify(&a, verbs.QPMState|mask))
	}
	const init = verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMAccessFlags
	const rtr = verbs.QPMAV | verbs.QPMPathMTU | verbs.QPMDestQPN | verbs.QPMRQPSN
	a.DestQPN, a.AH.DGID, a.AH.Port = x.recv.Num(), x.b.gid, 1
	step(x.send, verbs.QPSInit, init)
	step(x.send, verbs.QPSRTR, rtr)
	step(x.send, verbs.QPSRTS, verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic)
	a.DestQPN, a.AH.DGID, a.RQPSN, a.SQPSN = x.send.Num(), x.a.gid, 0x10, 0x20
	step(x.recv, verbs.QPSInit, init)
	step(x.recv, verbs.QPSRTR, rtr|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer)
}

// post posts a receive to shared queue i.
func (x *xrcWorld) post(i int, id uint64, off, n int) {
	x.t.Helper()
	e := x.b
	addr := e.alloc(verbs.SizeofRecvWR)
	wr, _ := mem.At[verbs.RecvWR](e.wrs, addr)
	*wr = verbs.RecvWR{WRID: id, NumSGE: 1, SGList: e.list([]verbs.SGE{{Addr: e.at(off), Length: uint32(n), LKey: x.mrs[i].LKey()}})}
	if _, err := verbs.PostSRQRecv(x.srqs[i], addr, 1); err != nil {
		x.t.Fatalf("post: %v", err)
	}
}

// to makes a request to a shared queue.
func (x *xrcWorld) to(srqn uint32, id uint64, op verbs.WROpcode, n int) request {
	wr := x.a.send(id, op, verbs.SendSignaled, x.a.sge(0, n))
	wr.RemoteSRQN = srqn
	return wr
}

// got returns the completions of shared queue i.
func (x *xrcWorld) got(i int) string {
	x.t.Helper()
	wcs := x.b.poll(x.cqs[i])
	for _, c := range wcs {
		if c.QPNum != x.recv.Num() {
			x.t.Fatalf("receive %d carries queue pair 0x%x, want the XRC_RECV one 0x%x", c.WRID, c.QPNum, x.recv.Num())
		}
	}
	return statuses(wcs)
}

// TestXRCOneConnectionManyQueues: each message goes to the queue it names, with that queue's keys
// and completions; a queue without receives delays the following messages, since they are one
// sequence.
func TestXRCOneConnectionManyQueues(t *testing.T) {
	x := newXRC(t)
	fill(x.a.data()[:3000], 5)
	x.post(0, 10, 4096, 4096)
	x.post(1, 20, 8192, 4096)
	x.post(1, 21, 12288, 4096)
	x.a.mustPost(x.to(x.srqs[1].Num(), 1, verbs.WRSend, 3000), x.to(x.srqs[0].Num(), 2, verbs.WRSend, 8), x.to(x.srqs[1].Num(), 3, verbs.WRSend, 8))
	x.settle()
	if a, b := x.got(0), x.got(1); a != "10:SUCCESS " || b != "20:SUCCESS 21:SUCCESS " {
		t.Fatalf("received %q and %q", a, b)
	}
	if !slices.Equal(x.b.data()[8192:8192+3000], x.a.data()[:3000]) {
		t.Fatalf("the message has other content")
	}
	x.a.ok(x.a.poll(x.a.scq), 1)
	x.post(1, 22, 0, 64)
	x.a.mustPost(x.to(x.srqs[0].Num(), 1, verbs.WRSend, 8), x.to(x.srqs[1].Num(), 2, verbs.WRSend, 8))
	x.step()
	if b := x.got(1); b != "" {
		t.Fatalf("%q overtook a message that waits for a receive", b)
	}
	x.post(0, 11, 64, 64)
	x.settle()
	if a, b := x.got(0), x.got(1); a != "11:SUCCESS " || b != "22:SUCCESS " {
		t.Fatalf("then received %q and %q", a, b)
	}
}

// TestXRCRemoteAccess: all remote memory operations of RC, checked in the protection domain of
// the queue that the request names.
func TestXRCRemoteAccess(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(x *xrcWorld, srqn, rkey uint32) request
		good func(x *xrcWorld) bool
	}{
		{"WRITE", func(x *xrcWorld, n, k uint32) request {
			wr := x.to(n, 1, verbs.WRRDMAWrite, 2500)
			wr.SetRDMA(x.b.at(4096), k)
			return wr
		}, func(x *xrcWorld) bool { return slices.Equal(x.b.data()[4096:6596], x.a.data()[:2500]) }},
		{"READ", func(x *xrcWorld, n, k uint32) request {
			wr := x.to(n, 1, verbs.WRRDMARead, 2500)
			wr.SetRDMA(x.b.at(4096), k)
			return wr
		}, func(x *xrcWorld) bool { return slices.Equal(x.b.data()[4096:6596], x.a.data()[:2500]) }},
		{"FETCH_ADD", func(x *xrcWorld, n, k uint32) request {
			wr := x.to(n, 1, verbs.WRAtomicFetchAndAdd, 8)
			wr.SetFetchAdd(x.b.at(0), k, 5)
			return wr
		}, func(x *xrcWorld) bool { return x.b.word(0) == 7 && x.a.word(0) == 2 }},
		{"WRITE with immediate", func(x *xrcWorld, n, k uint32) request {
			x.post(1, 1, 0, 8)
			wr := x.to(n, 1, verbs.WRRDMAWriteWithImm, 2500)
			wr.SetRDMA(x.b.at(4096), k)
			return wr
		}, func(x *xrcWorld) bool {
			return slices.Equal(x.b.data()[4096:6596], x.a.data()[:2500]) && x.got(1) == "1:SUCCESS "
		}},
	} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, key of the queue's domain %v", c.name, own), func(t *testing.T) {
				x := newXRC(t)
				fill(x.a.data()[:4096], 1)
				fill(x.b.data()[4096:8192], 9)
				x.b.setWord(0, 2)
				x.post(0, 9, 1<<16, 8)
				x.a.mustPost(x.to(x.srqs[0].Num(), 9, verbs.WRSend, 8)) // goes to another queue first
				x.settle()
				x.a.ok(x.a.poll(x.a.scq), 9)
				mr := x.mrs[1]
				if !own {
					mr = x.mrs[0]
				}
				x.a.mustPost(c.make(x, x.srqs[1].Num(), mr.RKey()))
				x.settle()
				want := "1:SUCCESS "
				if !own {
					want = "1:REM_ACCESS_ERR "
				}
				if got := statuses(x.a.poll(x.a.scq)); got != want {
					t.Fatalf("completes %q, want %q", got, want)
				}
				if own && !c.good(x) {
					t.Fatalf("it did not do what it does")
				}
			})
		}
	}
}

// TestXRCRefusals: requests that name a queue outside the domain, or a closed queue.
func TestXRCRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(x *xrcWorld) request
	}{
		{"no such queue", func(x *xrcWorld) request { return x.to(maxSRQN, 1, verbs.WRSend, 8) }},
		{"number 0", func(x *xrcWorld) request { return x.to(0, 1, verbs.WRSend, 8) }},
		{"a queue of another domain", func(x *xrcWorld) request {
			dom := must.Get(x.b.ctx.OpenXRCD(-1, 0))(x.t)
			s := x.queue(dom, 4)
			x.srqs = x.srqs[:2]
			x.ends = append(x.ends, s, dom)
			x.post(1, 1, 0, 8)
			return x.to(s.Num(), 1, verbs.WRSend, 8)
		}},
		{"a closed queue, by a READ", func(x *xrcWorld) request {
			s := x.queue(x.dom, 4)
			x.srqs = x.srqs[:2]
			n := s.Num()
			must.Do(x.t, s.Close())
			return x.to(n, 1, verbs.WRRDMARead, 8)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newXRC(t)
			x.a.mustPost(c.run(x))
			x.settle()
			if got := statuses(x.a.poll(x.a.scq)); got != "1:REM_INV_REQ_ERR " {
				t.Fatalf("completes %q, want REM_INV_REQ_ERR", got)
			}
			if ev := x.b.events(); !slices.Contains(ev, verbs.EventQPReqErr) || !slices.Contains(ev, verbs.EventQPLastWQEReached) {
				t.Fatalf("events %v, want QP_REQ_ERR and LAST_WQE_REACHED", ev)
			}
			if a, err := x.recv.Query(); err != nil || a.State != verbs.QPSErr {
				t.Fatalf("the responder is in %v (%v), want ERR", a.State, err)
			}
		})
	}
}

// TestXRCQueueClosedUnderAMessage: the receive vanishes with its queue, and the rest of the
// message finds no queue; nothing more is written.
func TestXRCQueueClosedUnderAMessage(t *testing.T) {
	x := newXRC(t)
	x.fab.SetLink(x.a.gid, x.b.gid, lose(1, wire.XRCSendLast))
	x.post(0, 1, 0, 4096)
	x.a.mustPost(x.to(x.srqs[0].Num(), 1, verbs.WRSend, 3000))
	x.step()
	must.Do(t, x.srqs[0].Close())
	mem.Poison(x.b.data())
	x.settle()
	if got := x.got(0); got != "" {
		t.Fatalf("a receive of a closed queue completed: %q", got)
	}
	if got := statuses(x.a.poll(x.a.scq)); got != "1:REM_INV_REQ_ERR " {
		t.Fatalf("the message completes %q, want REM_INV_REQ_ERR", got)
	}
	if at := mem.Poisoned(x.b.data()); at >= 0 {
		t.Fatalf("a byte was written at %d", at)
	}
}

// TestXRCOverrunFailsTheQueue: an overrun of its completion queue raises SRQ_ERR; the queue pair
// that caused it, and one that later sends to the queue, go to ERR.
func TestXRCOverrunFailsTheQueue(t *testing.T) {
	x := newXRC(t)
	must.Do(t, x.cqs[0].Resize(1))
	x.post(0, 1, 0, 8)
	x.post(0, 2, 0, 8)
	x.post(0, 3, 0, 8)
	x.a.mustPost(x.to(x.srqs[0].Num(), 1, verbs.WRSend, 8), x.to(x.srqs[0].Num(), 2, verbs.WRSend, 8))
	x.settle()
	ev := x.b.events()
	for _, want := range []verbs.AsyncEventType{verbs.EventCQErr, verbs.EventSRQErr, verbs.EventQPFatal} {
		if !slices.Contains(ev, want) {
			t.Fatalf("events %v, want %v among them", ev, want)
		}
	}
	must.Do(t, x.recv.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	must.Do(t, x.send.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	x.a.poll(x.a.scq)
	x.connect()
	x.post(1, 1, 0, 8)
	x.a.mustPost(x.to(x.srqs[1].Num(), 1, verbs.WRSend, 8), x.to(x.srqs[0].Num(), 2, verbs.WRSend, 8))
	x.settle()
	if got := statuses(x.a.poll(x.a.scq)); got != "1:SUCCESS 2:REM_OP_ERR " {
		t.Fatalf("completes %q, want the other queue to work and this one to be REM_OP_ERR", got)
	}
	if ev := x.b.events(); !slices.Contains(ev, verbs.EventQPFatal) || slices.Contains(ev, verbs.EventSRQErr) {
		t.Fatalf("events %v, want QP_FATAL, and SRQ_ERR no more than once", ev)
	}
}

// TestXRCHandles: a queue pair lives until its last handle is closed; all handles get its events,
// and unacknowledged events keep their handle open.
func TestXRCHandles(t *testing.T) {
	x := newXRC(t)
	q := must.Get(x.dom.OpenQP(x.recv.Num(), 77))(t)
	if q.Num() != x.recv.Num() || q.UserData() != 77 || x.recv.UserData() != 3 || q.Type() != verbs.QPTXRCRecv {
		t.Fatalf("handle on %v with %d", q, q.UserData())
	}
	if err := x.dom.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing a domain with queue pairs: %v, want ErrBusy", err)
	}
	x.post(0, 1, 0, 8)
	x.post(0, 2, 0, 8)
	x.a.mustPost(x.to(x.srqs[0].Num(), 1, verbs.WRSend, 8))
	x.settle()
	var evs []verbs.AsyncEvent
	for {
		ev, ok, err := x.b.ctx.Async().Get()
		must.Do(t, err)
		if !ok {
			break
		}
		evs = append(evs, ev)
	}
	if len(evs) != 2 || evs[0].Type != verbs.EventCommEst || evs[0].QP != verbs.QP(x.recv) || evs[1].QP != q {
		t.Fatalf("events %v, want COMM_EST at both handles", evs)
	}
	if err := x.recv.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing with an unacknowledged event: %v, want ErrBusy", err)
	}
	for _, ev := range evs {
		x.b.ctx.Async().Ack(ev)
	}
	must.Do(t, x.recv.Close())
	if _, err := x.recv.Query(); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("a closed handle answers %v, want ErrClosed", err)
	}
	x.a.mustPost(x.to(x.srqs[0].Num(), 2, verbs.WRSend, 8))
	x.settle()
	if got := x.got(0); got != "1:SUCCESS 2:SUCCESS " {
		t.Fatalf("with one handle left it received %q", got)
	}
	if a, err := q.Query(); err != nil || a.State != verbs.QPSRTR {
		t.Fatalf("the other handle sees %v, %v; want RTR", a.State, err)
	}
	must.Do(t, q.Close())
	if _, err := x.dom.OpenQP(q.Num(), 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("opening a queue pair whose handles are closed: %v, want ErrInvalid", err)
	}
	if _, err := x.dom.OpenQP(x.b.qp.Num(), 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("opening an RC queue pair: %v, want ErrInvalid", err)
	}
}

// TestXRCCreation: the attributes that each half has and lacks.
func TestXRCCreation(t *testing.T) {
	x := newXRC(t)
	if a := x.send.InitAttr(); a.RecvCQ != nil || a.SRQ != nil || a.Cap.MaxRecvWR != 0 || a.SendCQ != x.a.scq {
		t.Fatalf("XRC_SEND made of %+v, want a send queue only", a)
	}
	if _, err := verbs.PostSend(x.recv, x.a.wrs.Addr(), 1); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("a send of an XRC_RECV queue pair: %v, want EINVAL", err)
	}
	if _, err := verbs.PostRecv(x.recv, x.b.wrs.Addr(), 1); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("a receive of an XRC_RECV queue pair: %v, want EINVAL", err)
	}
	if _, err := x.a.post(x.to(maxSRQN+1, 1, verbs.WRSend, 8)); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("a number of more than 24 bits: %v, want EINVAL", err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Fatalf("%s: %v, want ErrInvalid", what, err)
		}
	}
	_, err := x.b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv, SendCQ: x.b.scq, RecvCQ: x.b.rcq})
	refused("XRC_RECV of a protection domain", err)
	_, err = x.dom.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTRC})
	refused("RC of an XRC domain", err)
	_, err = x.b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTRC, SendCQ: x.b.scq, RecvCQ: x.b.rcq, SRQ: x.srqs[0]})
	refused("RC with an XRC shared receive queue", err)
	_, err = x.b.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 1, XRCD: x.dom})
	refused("an XRC queue without a completion queue", err)
	_, err = x.b.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 1, CQ: x.b.rcq})
	refused("a completion queue without a domain", err)
	_, err = x.a.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 1, CQ: x.a.rcq, XRCD: x.dom})
	refused("a domain of another context", err)
	if err := x.cqs[0].Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing a completion queue of a shared receive queue: %v, want ErrBusy", err)
	}
	a := must.Get(x.srqs[1].Query())(t)
	if a.XRCD != x.dom || a.CQ != x.cqs[1] || x.srqs[1].Num() == 0 || x.srqs[0].Num() == x.srqs[1].Num() {
		t.Fatalf("the queue answers %+v with number %d", a, x.srqs[1].Num())
	}
}

// TestGoldenXRC: the packets of a connection that serves two queues, one of them empty at first.
func TestGoldenXRC(t *testing.T) {
	x := newXRC(t)
	r := &recorder{w: x.world}
	x.fab.SetTrace(r.packet, false)
	x.post(0, 1, 0, 4096)
	read := x.to(x.srqs[0].Num(), 2, verbs.WRRDMARead, 1500)
	read.SetRDMA(x.b.at(0), x.mrs[0].RKey())
	x.a.mustPost(x.to(x.srqs[0].Num(), 1, verbs.WRSend, 1500), read, x.to(x.srqs[1].Num(), 3, verbs.WRSend, 8))
	x.step()
	x.post(1, 2, 0, 8)
	x.settle()
	golden(t, "xrc_two_queues", r.String())
}
