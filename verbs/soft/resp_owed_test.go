package soft

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// owing returns a world with a socket's rules in which b has received a message from a, whose
// acknowledgement b owes.
func owing(t *testing.T) *world {
	t.Helper()
	w := lossyWorld(t, 0)
	w.fab.SetAll(fabric.Link{})
	w.message(1)
	if n := w.acknowledged(); n != 0 {
		t.Fatalf("%d messages are acknowledged at once", n)
	}
	return w
}

// message sends a message from a to b, which has received it when it returns.
func (w *world) message(id uint64) {
	w.t.Helper()
	w.b.recv(id, w.b.sge(0, 64))
	w.a.mustPost(w.a.send(id, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.step()
	w.b.ok(w.b.poll(w.b.rcq), id)
}

// acknowledged returns how many requests of a have completed since the last call.
func (w *world) acknowledged() int {
	w.step()
	return len(w.a.poll(w.a.scq))
}

// Rule: an owed acknowledgement leaves in the run that sends the answer, behind it, and alone for each of
// these: looks that found nothing, runs of the engine, a goroutine that sleeps, owedTime, the end of the queue pair
// or its connection. It leaves once.
func TestAnOwedAcknowledgementLeaves(t *testing.T) {
	link := new(roce.Link)
	for name, c := range map[string]func(t *testing.T, w *world){
		"with the answer": func(t *testing.T, w *world) {
			var sent []wire.Op
			w.fab.SetTrace(func(ev fabric.Event) {
				if ev.Src == w.b.gid {
					sent = append(sent, wire.Opcode(ev.Hdr[0]).Op()) // the first byte of the BTH
				}
			}, false)
			w.a.recv(7, w.a.sge(0, 64))
			w.b.mustPost(w.b.send(7, verbs.WRSend, verbs.SendSignaled, w.b.sge(0, 8)))
			for len(sent) == 0 && w.fab.Step() {
			}
			if len(sent) != 2 || sent[0] != wire.OpSendOnly || sent[1] != wire.OpAcknowledge {
				t.Errorf("b has sent %v, want a message and an acknowledgement", sent)
			}
			w.fab.SetTrace(nil, false)
		},
		"after looks": func(t *testing.T, w *world) {
			for range owedLooks {
				if w.acknowledged() != 0 {
					t.Error("acknowledged too early")
				}
				w.b.ctx.dev.looked(link, true)
			}
		},
		"after runs": func(t *testing.T, w *world) {
			for range owedRuns {
				if w.acknowledged() != 0 {
					t.Error("acknowledged too early")
				}
				w.b.ctx.dev.p.Kick()
			}
		},
		"before rest":                func(t *testing.T, w *world) { w.b.ctx.dev.rests(link) },
		"before sleep":               func(t *testing.T, w *world) { w.b.ctx.dev.looked(link, false) },
		"after the link's goroutine": func(t *testing.T, w *world) { w.b.ctx.dev.pay() },
		"after owedTime": func(t *testing.T, w *world) {
			at, ok := w.fab.NextEvent()
			if want := w.b.ctx.dev.owed.since + owedTime; !ok || at != want {
				t.Errorf("the next event is at %v, want %v", at, want)
			}
			w.fab.AdvanceTo(at)
		},
		"before the queue pair fails": func(t *testing.T, w *world) {
			must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		},
		"before the queue pair is closed": func(t *testing.T, w *world) { must.Do(t, w.b.qp.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := owing(t)
			c(t, w)
			if n := w.acknowledged(); n != 1 {
				t.Errorf("%d messages are acknowledged, want 1", n)
			}
			o := &w.b.ctx.dev.owed
			if o.count != 0 || len(o.qps) != 0 || o.looks.Load() != 0 {
				t.Errorf("%d are owed by %d queue pairs after %d looks, want none", o.count, len(o.qps), o.looks.Load())
			}
			w.b.ctx.dev.pay()
			w.settle()
			want := uint64(1)
			if name == "with the answer" {
				want = 2
			}
			if n := w.b.sent(); n != want {
				t.Errorf("b has sent %d packets, want %d", n, want)
			}
		})
	}
}

// Rule: several messages are acknowledged by one packet, and a WRITE behind a message has both acknowledged at
// once: no program is told of it, and so none answers.
func TestAnOwedAcknowledgementIsReplaced(t *testing.T) {
	w := owing(t)
	before := w.b.sent()
	w.message(2)
	if n := w.acknowledged(); n != 0 {
		t.Errorf("%d messages are acknowledged at once", n)
	}
	w.write(3, 8)
	if n := w.acknowledged(); n != 3 {
		t.Errorf("%d requests are acknowledged, want 3", n)
	}
	if n := w.b.sent() - before; n != 1 {
		t.Errorf("b has sent %d packets, want 1", n)
	}
}

// Rule: the acknowledgement of a WRITE does not wait, even if a message behind it completes a receive in the same
// run.
func TestAMessageDelaysNoDueAcknowledgement(t *testing.T) {
	w := lossyWorld(t, 0)
	w.fab.SetAll(fabric.Link{})
	w.b.recv(2, w.b.sge(0, 64))
	write := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
	write.SetRDMA(w.b.at(64), w.b.mr.RKey())
	w.a.mustPost(write, w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	if n := w.acknowledged(); n != 2 {
		t.Errorf("%d requests are acknowledged at once, want 2", n)
	}
}

// Rule: a NAK takes the place of an owed acknowledgement.
func TestANakAcknowledgesWhatIsOwed(t *testing.T) {
	w := owing(t)
	before := w.b.sent()
	wr := w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey()+1)
	w.a.mustPost(wr)
	w.step()
	wcs := w.a.poll(w.a.scq)
	if len(wcs) != 2 || wcs[0].Status != verbs.WCSuccess || wcs[1].Status != verbs.WCRemAccessErr {
		t.Errorf("completions %+v, want a success and an access error", wcs)
	}
	if n, sent := w.b.ctx.dev.owed.count, w.b.sent()-before; n != 0 || sent != 1 {
		t.Errorf("%d are owed afterwards, and %d packets were sent, want the NAK alone", n, sent)
	}
}

// Rule: within the fabric nothing is owed.
func TestNothingIsOwedWithoutASocket(t *testing.T) {
	w := newWorld(t, options{})
	w.message(1)
	if n := w.acknowledged(); n != 1 {
		t.Errorf("%d messages are acknowledged at once, want 1", n)
	}
}

// Rule: an acknowledgement never leaves before the answer to an earlier READ, not even with a request: the peer
// would take the answers for lost.
func TestAnAcknowledgementFollowsTheAnswersToReads(t *testing.T) {
	w := lossyWorld(t, 0)
	w.fab.SetAll(fabric.Link{})
	const answers = emitPerProgress + 10 // more than one run sends
	w.a.ctx.dev.exclusive(func() { w.a.qp.req.window.psns, w.a.qp.req.window.chunk = windowPSNs, windowPSNs })
	var sent []wire.Op
	w.fab.SetTrace(func(ev fabric.Event) {
		if ev.Src == w.b.gid {
			sent = append(sent, wire.Opcode(ev.Hdr[0]).Op())
		}
	}, false)
	w.b.recv(1, w.b.sge(0, 64))
	w.a.recv(1, w.a.sge(0, 64))
	w.a.mustPost(w.a.readWR(1, answers*1024, w.b.at(0), w.b.mr.RKey()), w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.b.mustPost(w.b.send(1, verbs.WRSend, verbs.SendSignaled, w.b.sge(0, 8)))
	w.settle()
	w.fab.SetTrace(nil, false)
	last := -1
	for i, op := range sent {
		if op == wire.OpReadRespLast || op == wire.OpReadRespOnly {
			last = i
		}
	}
	if i := slices.Index(sent, wire.OpAcknowledge); last < 0 || i < last {
		t.Errorf("the acknowledgement is packet %d, the last answer %d, of %d", i, last, len(sent))
	}
	if got := must.Get(w.p.LinkStats("a"))(t).Again; got != (Again{}) {
		t.Errorf("%+v were sent again", got)
	}
}

// Rule: a message that was received is acknowledged even if a request of the same run moves the queue pair to ERR.
func TestAReceivedMessageIsAcknowledgedBeforeTheEnd(t *testing.T) {
	w := lossyWorld(t, 0) // its packets take oneWay
	w.b.recv(1, w.b.sge(0, 64))
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.step()
	bad := w.b.sge(0, 8)
	bad.LKey++
	w.b.mustPost(w.b.send(2, verbs.WRSend, verbs.SendSignaled, bad)) // runs with the message, which arrives now
	w.fab.AdvanceTo(w.fab.Now() + oneWay)
	w.settle()
	if wcs := w.a.poll(w.a.scq); len(wcs) != 1 || wcs[0].Status != verbs.WCSuccess {
		t.Errorf("completions %+v, want a success", wcs)
	}
}

// Rule: the answer to a READ takes the place of an owed acknowledgement of an earlier message.
func TestAnAnswerPaysWhatIsOwed(t *testing.T) {
	w := owing(t)
	w.a.mustPost(w.a.readWR(2, 8, w.b.at(0), w.b.mr.RKey()))
	if n := w.acknowledged(); n != 2 {
		t.Errorf("%d requests have completed, want 2", n)
	}
	if o := &w.b.ctx.dev.owed; o.count != 0 || o.looks.Load() != 0 {
		t.Errorf("%d are owed after %d looks", o.count, o.looks.Load())
	}
}
