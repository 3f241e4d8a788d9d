package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// lose returns a link that drops the nth packet of an opcode.
func lose(n uint64, ops ...wire.Opcode) fabric.Link {
	return fabric.Link{Rules: []fabric.Rule{{Opcodes: ops, From: n, To: n, Drop: true}}}
}

// TestSRQTakesInPostingOrder: a message to any queue pair takes the receive posted first, and
// completes on that queue pair's completion queue.
func TestSRQTakesInPostingOrder(t *testing.T) {
	x := share(t, 3, verbs.SRQAttr{MaxWR: 8, MaxSGE: 4}, options{})
	x.post(10, 5)
	for n, i := range []int{2, 0, 1, 0, 2} {
		x.send(i, uint64(n), 100)
		x.settle()
	}
	for i, want := range []string{"11:SUCCESS 13:SUCCESS ", "12:SUCCESS ", "10:SUCCESS 14:SUCCESS "} {
		if got := x.got(i); got != want {
			t.Fatalf("connection %d received %q, want %q", i, got, want)
		}
	}
}

// TestSRQMessageKeepsItsReceive: a message in progress keeps its receive while others take the
// next ones; slots are freed one by one, by polling, in the order in which messages end.
func TestSRQMessageKeepsItsReceive(t *testing.T) {
	x := share(t, 2, verbs.SRQAttr{MaxWR: 3, MaxSGE: 4}, options{})
	x.fab.SetLink(x.a.gid, x.b.gid, lose(1, wire.RCSendLast))
	x.post(1, 3)
	if !x.full() {
		t.Fatalf("a fourth receive of three was taken")
	}
	x.send(0, 1, 3000) // its last packet is lost: it is in progress
	x.step()
	x.send(1, 2, 10)
	x.step()
	if !x.full() {
		t.Fatalf("a place came back before its completion was polled")
	}
	if got := x.got(1); got != "2:SUCCESS " {
		t.Fatalf("the second message completes %q, want receive 2", got)
	}
	if x.full() {
		t.Fatalf("no place came back for a completion polled before an earlier receive's")
	}
	x.post(4, 1)
	if !x.full() {
		t.Fatalf("one polled, two posted")
	}
	x.settle()
	if got := x.got(0); got != "1:SUCCESS " {
		t.Fatalf("the message that began first completes %q, want receive 1", got)
	}
	x.post(5, 1)
	for id := range uint64(3) {
		x.send(1, id, 10)
	}
	x.settle()
	if got := x.got(1); got != "3:SUCCESS 4:SUCCESS 5:SUCCESS " {
		t.Fatalf("then %q, want 3, 4, 5: the order of posting", got)
	}
}

// TestSRQLimit: one event for each arming, when a receive is taken and fewer than the limit are
// left.
func TestSRQLimit(t *testing.T) {
	x := share(t, 1, verbs.SRQAttr{MaxWR: 8, MaxSGE: 4, Limit: 3}, options{})
	x.post(0, 8)
	step := func(what string, msgs, want int) {
		t.Helper()
		for range msgs {
			x.send(0, 1, 8)
		}
		x.settle()
		x.got(0)
		if n := x.has(verbs.EventSRQLimitReached); n != want {
			t.Fatalf("%s: %d events, want %d", what, n, want)
		}
	}
	limit := func(want uint32) {
		t.Helper()
		a := must.Get(x.s.Query())(t)
		if a.Limit != want || a.MaxWR != 8 || a.MaxSGE != 4 {
			t.Fatalf("attributes %+v, want limit %d of 8 receives of 4 elements", a, want)
		}
	}
	step("three left", 5, 0)
	limit(3)
	step("two left", 1, 1)
	limit(0)
	step("one left, not armed again", 1, 0)
	x.post(8, 7)
	must.Do(t, x.s.SetLimit(8))
	step("armed with as many as are posted", 0, 0)
	step("armed again, one taken", 1, 1)
	must.Do(t, x.s.SetLimit(8))
	must.Do(t, x.s.SetLimit(0))
	step("disarmed", 1, 0)
	must.Do(t, x.s.SetLimit(8))
	step("armed while fewer are left already", 2, 1)
	if err := x.s.SetLimit(9); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("a limit above the size: %v, want ErrInvalid", err)
	}
}

// TestSRQEmptyIsRNR: a message that finds no receive is delayed, not lost, and takes the one that
// is posted next.
func TestSRQEmptyIsRNR(t *testing.T) {
	x := share(t, 2, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
	r := &recorder{w: x.world}
	x.fab.SetTrace(r.packet, false)
	x.send(0, 1, 2000)
	x.step()
	x.post(7, 1)
	x.send(1, 2, 8) // arrives first: the other waits for its timer
	x.step()
	x.post(8, 1)
	x.settle()
	if a, b := x.got(0), x.got(1); a != "8:SUCCESS " || b != "7:SUCCESS " {
		t.Fatalf("received %q and %q, want 8 by the one that was delayed", a, b)
	}
	golden(t, "srq_empty_then_posted", r.String())
}

// TestSRQErrorLeavesTheRest: a queue pair that goes to ERR flushes only the receive of its
// message in progress, and then raises LAST_WQE_REACHED, once.
func TestSRQErrorLeavesTheRest(t *testing.T) {
	for _, c := range []struct {
		name  string
		begun bool
		want  string
	}{{"in the middle of a message", true, "1:WR_FLUSH_ERR "}, {"between messages", false, ""}} {
		t.Run(c.name, func(t *testing.T) {
			x := share(t, 2, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
			x.post(1, 3)
			if c.begun {
				x.fab.SetLink(x.a.gid, x.b.gid, lose(1, wire.RCSendLast))
				x.send(0, 1, 3000)
				x.step()
			}
			x.b.events()
			b := x.bs[0]
			seen, told := "no event", 0
			b.ctx.Async().Notify(func() {
				if evs := b.events(); len(evs) == 1 && evs[0] == verbs.EventQPLastWQEReached {
					seen = x.got(0)
					told++
				} else if len(evs) > 0 {
					t.Errorf("events %v, want LAST_WQE_REACHED", evs)
				}
			})
			must.Do(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
			x.step()
			if seen != c.want {
				t.Fatalf("at LAST_WQE_REACHED %q had completed, want %q", seen, c.want)
			}
			// A send posted in ERR is flushed; it is not another last receive.
			b.mustPost(b.send(9, verbs.WRSend, 0))
			x.step()
			b.ctx.Async().Notify(nil)
			if told != 1 {
				t.Fatalf("LAST_WQE_REACHED %d times, want once", told)
			}
			x.send(1, 2, 8)
			x.settle()
			want := "1:SUCCESS "
			if c.begun {
				want = "2:SUCCESS "
			}
			if got := x.got(1); got != want {
				t.Fatalf("the other queue pair received %q, want %q: what is posted is for others", got, want)
			}
		})
	}
}

// TestSRQErrorCompletesWithTheCause: a message refused in its middle completes its receive with
// the reason.
func TestSRQErrorCompletesWithTheCause(t *testing.T) {
	x := share(t, 2, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
	must.Do(t, x.tryPost(1, x.b.sge(0, 1500)))
	x.post(2, 1)
	x.send(0, 1, 3000)
	x.settle()
	if got := x.got(0); got != "1:LOC_LEN_ERR " {
		t.Fatalf("a message that is too long completes %q, want LOC_LEN_ERR of the receive it took", got)
	}
	if n := x.has(verbs.EventQPLastWQEReached); n != 1 {
		t.Fatalf("LAST_WQE_REACHED %d times, want once", n)
	}
	x.send(1, 1, 8)
	x.settle()
	if got := x.got(1); got != "2:SUCCESS " {
		t.Fatalf("then %q, want the next receive", got)
	}
}

// TestSRQReceiveSurvivesItsQueuePair: a reset or destruction in the middle of a message flushes
// the receive taken, and unpolled completions stay: the buffers belong to the shared queue's
// owner. Their slots are freed too.
func TestSRQReceiveSurvivesItsQueuePair(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(q *queuePair) error
	}{
		{"reset", func(q *queuePair) error { return q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState) }},
		{"destroyed", func(q *queuePair) error { return q.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := share(t, 1, verbs.SRQAttr{MaxWR: 2, MaxSGE: 4}, options{})
			x.fab.SetLink(x.a.gid, x.b.gid, lose(1, wire.RCSendLast))
			x.post(1, 2)
			x.send(0, 1, 8)
			x.send(0, 2, 3000)
			x.step()
			must.Do(t, c.end(x.bs[0].qp))
			x.step()
			if !x.full() {
				t.Fatalf("a place came back before its completion was polled")
			}
			if got := x.got(0); got != "1:SUCCESS 2:WR_FLUSH_ERR " {
				t.Fatalf("completions %q, want that of the message that came, and the other flushed", got)
			}
			x.post(3, 2)
			if !x.full() {
				t.Fatalf("more places came back than there are")
			}
		})
	}
}

// TestSRQPlacesSurviveTheQueueOfCompletions: completions that are never polled, because their
// completion queue is closed or overrun, free their slots.
func TestSRQPlacesSurviveTheQueueOfCompletions(t *testing.T) {
	x := share(t, 2, verbs.SRQAttr{MaxWR: 3, MaxSGE: 4}, options{})
	x.post(1, 3)
	x.send(0, 1, 8)
	x.settle()
	x.drop(0) // with one completion in its queue
	x.as, x.bs = x.as[1:], x.bs[1:]
	x.post(4, 1)
	if !x.full() {
		t.Fatalf("a closed completion queue gave back more than one place")
	}
	must.Do(t, x.bs[0].rcq.Resize(1))
	x.send(0, 1, 8)
	x.send(0, 2, 8) // overruns
	x.settle()
	x.post(5, 1)
	if !x.full() {
		t.Fatalf("an overrun gave back more than the place of the completion that was lost")
	}
}

// TestSRQResize: posted receives keep their order, outstanding ones count until they are polled,
// and a smaller capacity is refused.
func TestSRQResize(t *testing.T) {
	x := share(t, 2, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
	x.fab.SetLink(x.a.gid, x.b.gid, lose(1, wire.RCSendLast))
	x.post(1, 4)
	x.send(0, 1, 3000) // holds 1
	x.step()
	x.send(1, 1, 8) // 2 completes, not polled
	x.step()
	must.Do(t, x.s.SetLimit(2))
	for _, n := range []uint32{0, 1, 3, 1 << 30} {
		if err := x.s.Resize(n); !errors.Is(err, verbs.ErrInvalid) {
			t.Fatalf("resizing to %d with four outstanding: %v, want ErrInvalid", n, err)
		}
	}
	must.Do(t, x.s.Resize(6))
	x.post(5, 2)
	if !x.full() {
		t.Fatalf("six places: four out, two posted, and more is taken")
	}
	if got := x.got(1); got != "2:SUCCESS " {
		t.Fatalf("the completion across the resizing: %q", got)
	}
	must.Do(t, x.s.Resize(5))
	if !x.full() {
		t.Fatalf("five places: five out, and more is taken")
	}
	x.settle()
	if got := x.got(0); got != "1:SUCCESS " {
		t.Fatalf("the message that held its receive across two resizings completes %q", got)
	}
	x.post(7, 1)
	if !x.full() {
		t.Fatalf("one came back, and more than one is taken")
	}
	must.Do(t, x.s.SetLimit(0))
	for range 5 {
		x.send(1, 1, 8)
	}
	x.settle()
	if got := x.got(1); got != "3:SUCCESS 4:SUCCESS 5:SUCCESS 6:SUCCESS 7:SUCCESS " {
		t.Fatalf("taken as %q, want the order of posting", got)
	}
	must.Do(t, x.s.SetLimit(3))
	if err := x.s.Resize(2); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("resizing below the limit: %v, want ErrInvalid", err)
	}
	if a, _ := x.s.Query(); a.MaxWR != 5 || a.Limit != 3 {
		t.Fatalf("a refused resizing left %+v", a)
	}
}

// TestSRQOwnership: which objects keep others from closing, and the attributes of a queue pair
// that shares receives.
func TestSRQOwnership(t *testing.T) {
	x := share(t, 1, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4, UserData: 5}, options{})
	busy := func(o verbs.Object) {
		t.Helper()
		if err := o.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("closing %v: %v, want ErrBusy", o, err)
		}
	}
	busy(x.s)
	pd := must.Get(x.b.ctx.AllocPD())(t)
	other := must.Get(pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 1}))(t)
	busy(pd)
	x.b.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: other})
	ev, ok, err := x.b.ctx.Async().Get()
	if err != nil || !ok || ev.SRQ != other {
		t.Fatalf("event %v %v %v, want one of %v", ev, ok, err, other)
	}
	busy(other)
	x.b.ctx.Async().Ack(ev)
	if n := x.b.ctx.Objects().SRQ; n != 2 {
		t.Fatalf("%d shared receive queues alive, want 2", n)
	}
	must.Do(t, other.Close())
	must.Do(t, other.Close())
	must.Do(t, pd.Close())
	if a := x.bs[0].qp.InitAttr(); a.SRQ != x.s || a.Cap.MaxRecvWR != 0 || a.Cap.MaxRecvSGE != 0 {
		t.Fatalf("made of %+v, want the shared queue and no receives of its own", a)
	}
	if a := x.b.qp.InitAttr(); a.SRQ != nil {
		t.Fatalf("a queue pair with receives of its own shares %v", a.SRQ)
	}
	if _, err := verbs.PostRecv(x.bs[0].qp, x.b.wrs.Addr(), 1); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("posting to the queue pair's own receives: %v, want EINVAL", err)
	}
	init := verbs.QPInitAttr{SendCQ: x.a.scq, RecvCQ: x.a.rcq, SRQ: x.s, Type: verbs.QPTRC}
	if _, err := x.a.pd.CreateQP(&init); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("a shared queue of another context: %v, want ErrInvalid", err)
	}
	d := must.Get(x.b.ctx.QueryDevice())(t)
	for _, bad := range []verbs.SRQAttr{
		{}, {MaxWR: uint32(d.MaxSRQWR) + 1}, {MaxWR: 1, MaxSGE: uint32(d.MaxSRQSGE) + 1}, {MaxWR: 2, Limit: 3},
	} {
		if s, err := x.b.pd.CreateSRQ(&bad); !errors.Is(err, verbs.ErrInvalid) {
			t.Fatalf("%+v: %v, %v; want ErrInvalid", bad, s, err)
		}
	}
}

// TestSRQWriteWithImmediate: it takes a receive when it ends; a WRITE takes none.
func TestSRQWriteWithImmediate(t *testing.T) {
	x := share(t, 1, verbs.SRQAttr{MaxWR: 2, MaxSGE: 4, Limit: 2}, options{})
	x.post(1, 2)
	a := x.as[0]
	plain := a.send(1, verbs.WRRDMAWrite, 0, a.sge(0, 2000))
	plain.SetRDMA(x.b.at(0), x.b.mr.RKey())
	a.mustPost(plain)
	x.settle()
	if n := x.has(verbs.EventSRQLimitReached); n != 0 {
		t.Fatalf("a WRITE took a receive")
	}
	imm := a.send(1, verbs.WRRDMAWriteWithImm, 0, a.sge(0, 2000))
	imm.SetRDMA(x.b.at(0), x.b.mr.RKey())
	imm.SetImm(77)
	a.mustPost(imm)
	x.settle()
	wcs := x.bs[0].poll(x.bs[0].rcq)
	if len(wcs) != 1 || wcs[0].WRID != 1 || wcs[0].Opcode != verbs.WCRecvRDMAWithImm || wcs[0].Imm() != 77 || wcs[0].ByteLen != 2000 {
		t.Fatalf("completions %+v, want receive 1 with the immediate", wcs)
	}
	if n := x.has(verbs.EventSRQLimitReached); n != 1 {
		t.Fatalf("%d limit events, want 1", n)
	}
}

// TestSRQUsesItsOwnDomain: the elements of a shared receive are checked in the protection domain
// of the shared queue, not of the queue pair (IBTA volume 1, 10.2.9).
func TestSRQUsesItsOwnDomain(t *testing.T) {
	x := share(t, 1, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
	pd := must.Get(x.b.ctx.AllocPD())(t)
	mr := must.Get(pd.RegMR(x.b.arena.Addr(), 4096, x.b.arena.Addr(), allAccess))(t)
	srq := must.Get(pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}))(t)
	init := verbs.QPInitAttr{SendCQ: x.b.scq, RecvCQ: x.b.rcq, SRQ: srq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1}}
	q := must.Get(x.b.pd.CreateQP(&init))(t)
	must.Do(t, x.bs[0].qp.Close())
	must.Do(t, x.bs[0].rcq.Close())
	own := x.s
	x.s, x.bs[0].qp, x.bs[0].rcq = srq.(*sharedQueue), q.(*queuePair), x.b.rcq
	must.Do(t, x.as[0].qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	x.join(0)
	must.Do(t, x.tryPost(1, verbs.SGE{Addr: x.b.at(0), Length: 4096, LKey: mr.LKey()}))
	must.Do(t, x.tryPost(2, x.b.sge(0, 64))) // a key of the queue pair's domain
	x.send(0, 1, 3000)
	x.send(0, 2, 8)
	x.settle()
	if got := x.got(0); got != "1:SUCCESS 2:LOC_PROT_ERR " {
		t.Fatalf("received %q, want the shared queue's key to work and the queue pair's not", got)
	}
	x.b.events()
	for _, o := range []verbs.Object{q, srq, mr, pd} {
		must.Do(t, o.Close())
	}
	x.s = own
	rcq, err := x.b.ctx.CreateCQ(1, nil, 0, 0) // for the cleanup to close
	must.Do(t, err)
	x.bs[0].rcq = rcq
}

// TestSRQAllocatesNothing: posting, taking and polling.
func TestSRQAllocatesNothing(t *testing.T) {
	x := share(t, 1, verbs.SRQAttr{MaxWR: 4, MaxSGE: 4}, options{})
	a, b := x.as[0], x.bs[0]
	wr := a.send(1, verbs.WRSend, verbs.SendSignaled, a.sge(0, 200))
	addr := b.alloc(verbs.SizeofRecvWR)
	rw, _ := mem.At[verbs.RecvWR](b.wrs, addr)
	*rw = verbs.RecvWR{WRID: 1, NumSGE: 1, SGList: b.list([]verbs.SGE{b.sge(0, 4096)})}
	wcs, _ := mem.Array[verbs.WC](b.wcs, b.wcs.Addr(), 8)
	recv := &verbs.IOBatch{Recvs: []verbs.RecvGroup{{SRQ: x.s, Head: addr, Count: 1}}}
	send := &verbs.IOBatch{Sends: []verbs.SendGroup{{QP: a.qp, Head: wr.addr, Count: 1}}}
	polled := &verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: b.rcq, WC: wcs}}}
	done := &verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: a.scq, WC: wcs}}}
	var failed error
	n := testing.AllocsPerRun(100, func() {
		failed = errors.Join(failed, b.ctx.Execute(recv), a.ctx.Execute(send))
		x.settle()
		failed = errors.Join(failed, b.ctx.Execute(polled), a.ctx.Execute(done))
		if recv.Recvs[0].Accepted != 1 || polled.Polls[0].N != 1 || done.Polls[0].N != 1 {
			failed = errors.New("a message did not come")
		}
	})
	must.Do(t, failed)
	if n != 0 {
		t.Fatalf("%v allocations for a message", n)
	}
}
