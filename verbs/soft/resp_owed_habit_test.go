package soft

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// exchange sends a message from a to b, which answers it after a time.
func (w *world) exchange(id uint64, after time.Duration) {
	w.t.Helper()
	w.message(id)
	w.fab.AdvanceTo(w.fab.Now() + after)
	w.a.recv(id, w.a.sge(64, 64))
	w.b.mustPost(w.b.send(id, verbs.WRSend, verbs.SendSignaled, w.b.sge(64, 8)))
	w.step()
	w.a.ok(w.a.poll(w.a.rcq), id)
	w.a.ok(w.a.poll(w.a.scq), id)
	w.a.ctx.dev.pay()
	w.step()
	w.b.ok(w.b.poll(w.b.scq), id)
}

// Rule: while a program answers each message at once, a goroutine that may be about to sleep does not have the
// acknowledgement sent: it leaves with the answer, after looks that found nothing, or after owedTime. One message
// without an answer at once, or another queue pair whose program is not known to answer, ends that.
func TestAHabitOfAnsweringKeepsTheAcknowledgement(t *testing.T) {
	const soon, late = answerTime, answerTime + 1
	link := new(roce.Link)
	nothing := func(*world) {}
	looks := func(again bool) func(w *world) {
		return func(w *world) {
			for range owedLooks {
				if n := w.acknowledged(); n != 0 {
					w.t.Fatalf("%d messages are acknowledged before the last look, want 0", n)
				}
				w.b.ctx.dev.looked(link, again)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(w *world) // after a habit
		then   func(w *world) // after one more message
		paid   bool           // then
	}{
		"a habit":                        {nothing, nothing, false},
		"an answer at the last moment":   {func(w *world) { w.exchange(101, soon) }, nothing, false},
		"a late answer":                  {func(w *world) { w.exchange(101, late) }, nothing, true},
		"a message without an answer":    {(*world).unanswered, nothing, true},
		"one answer less after that":     {func(w *world) { w.exchange(101, late); w.exchanges(102, habitAnswers-1) }, nothing, true},
		"a new habit":                    {func(w *world) { w.exchange(101, late); w.exchanges(102, habitAnswers) }, nothing, false},
		"one answer less the next time":  {func(w *world) { w.unanswered(); w.exchanges(102, 2*habitAnswers-1) }, nothing, true},
		"a new habit the next time":      {func(w *world) { w.unanswered(); w.exchanges(102, 2*habitAnswers) }, nothing, false},
		"the same after a later answer":  {func(w *world) { w.exchange(101, owedTime); w.exchanges(102, 2*habitAnswers-1) }, nothing, true},
		"another queue pair without one": {nothing, (*world).otherOwes, true},
		"looks":                          {nothing, looks(true), true},
		"looks at armed queues":          {nothing, looks(false), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := lossyWorld(t, 0)
			w.fab.SetAll(fabric.Link{})
			w.exchanges(1, habitAnswers)
			c.change(w)
			w.message(200)
			c.then(w)
			w.b.ctx.dev.rests(link)
			if n := w.acknowledged(); n > 1 || (n == 1) != c.paid {
				t.Fatalf("%d messages are acknowledged before sleep; want one: %v", n, c.paid)
			}
			if c.paid {
				return
			}
			at, ok := w.fab.NextEvent()
			if want := w.b.ctx.dev.owed.since + owedTime; !ok || at != want {
				t.Errorf("the next event is at %v, want %v", at, want)
			}
			w.fab.AdvanceTo(at)
			if n := w.acknowledged(); n != 1 {
				t.Errorf("%d messages are acknowledged after owedTime, want 1", n)
			}
		})
	}
}

// Rule: a habit that was broken maxBroken times takes habitAnswers << maxBroken answers, also after that.
func TestAHabitTakesABoundedNumberOfAnswers(t *testing.T) {
	var h habit
	psn := uint64(0)
	message := func() { psn++; h.received(psn, 0) }
	for broken := range maxBroken + 3 {
		for n := 0; !h.answers(); n++ {
			if want := habitAnswers << min(broken, maxBroken); n > want {
				t.Fatalf("broken %d times, no habit after %d answers", broken, want)
			}
			message()
			h.answered(0)
		}
		message()
		message()
		h.answered(0)
		if h.soon != 1 {
			t.Errorf("broken %d times, %d answers in a row, want 1", broken+1, h.soon)
		}
	}
}

// Rule: a request that is sent again is no answer to a message that came after it was sent first.
func TestARequestThatIsSentAgainIsNoAnswer(t *testing.T) {
	w := lossyWorld(t, 1)
	w.fab.SetAll(fabric.Link{})
	w.fab.SetLink(w.b.gid, w.a.gid, fabric.Link{Rules: []fabric.Rule{{From: 1, To: 1, Drop: true}, {From: 2, To: 2, Delay: oneWay}}})
	for id := range uint64(2) {
		w.a.recv(id, w.a.sge(64, 64))
		w.b.mustPost(w.b.send(id, verbs.WRSend, verbs.SendSignaled, w.b.sge(64, 8)))
	}
	w.step()
	w.message(2)
	w.settle() // the second request arrives, and a asks for both again
	if wcs := w.a.poll(w.a.rcq); len(wcs) != 2 {
		t.Fatalf("%d messages arrived, want 2", len(wcs))
	}
	if !w.b.qp.resp.habit.open {
		t.Error("the message counts as answered")
	}
}

// unanswered sends a message from a to b, which does not answer it.
func (w *world) unanswered() {
	w.t.Helper()
	w.message(101)
	w.b.ctx.dev.pay()
	if n := w.acknowledged(); n != 1 {
		w.t.Fatalf("%d messages are acknowledged, want 1", n)
	}
}

// otherOwes has another queue pair of b owe an acknowledgement. It is closed, so that the engine does not work on it.
func (w *world) otherOwes() {
	q := new(queuePair)
	q.closed.Store(true)
	w.b.ctx.dev.exclusive(func() { w.b.ctx.dev.owe(q) })
}

// exchanges does n exchanges that are answered at once.
func (w *world) exchanges(id uint64, n int) {
	w.t.Helper()
	for i := range n {
		w.exchange(id+uint64(i), 0)
	}
}
