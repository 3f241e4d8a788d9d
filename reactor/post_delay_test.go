package reactor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

var errKept = errors.New("the test ends the queue")

const (
	keepDelay = 10 * time.Microsecond
	keepBatch = 4
	keepDepth = 12
)

// keptBed is a pair of stepped reactors that delay sends. The device of k.a returns completions
// only while the field lets is set.
type keptBed struct {
	t     *testing.T
	a, b  *end
	more  *end // a second queue on the reactor of k.a
	clock *clock
	lets  bool               // the device of k.a returns completions
	lists map[verbs.QP][]int // the lengths of the lists that k.a posted since the last clear
	ended map[*end][]uint64  // the tags of the ended sends, in order
}

func newKeptBed(t *testing.T, delay time.Duration) *keptBed {
	onlySoft(t, "a device completes when it likes")
	k := &keptBed{t: t, clock: &clock{time.Unix(1_700_000_000, 0)}, lists: map[verbs.QP][]int{}, ended: map[*end][]uint64{}, lets: true}
	cfg := reactor.Config{Stepped: true, Now: k.clock.Now, FlushDelay: delay, FlushBatch: keepBatch}
	qc := reactor.QueueConfig{SendDepth: keepDepth, SignalEvery: 3}
	var h *hooked
	k.a, k.b, h = hookedPair(t, cfg, qc)
	k.more = k.a.another(t, qc)
	peer := k.b.another(t, qc)
	k.more.ready(t, peer)
	peer.ready(t, k.more)
	h.set(func(inner verbs.Context, tn *verbs.IOBatch) error {
		for _, g := range tn.Sends {
			k.lists[g.QP] = append(k.lists[g.QP], g.Count)
		}
		if !k.lets {
			tn.Polls = nil
		}
		return inner.Execute(tn)
	})
	t.Cleanup(func() {
		k.lets = true
		k.more.release(t, reactor.ErrClosed)
		k.a.release(t, reactor.ErrClosed)
		peer.release(t, reactor.ErrClosed)
		k.b.release(t, reactor.ErrClosed)
		k.a.closeRest(t)
		k.b.closeRest(t)
	})
	return k
}

func (k *keptBed) post(e *end, tag uint64) {
	k.t.Helper()
	s, p := e.write(k.b)
	s.Tag = tag
	s.Sink = called(func(c reactor.Completion, _ error) { k.ended[e] = append(k.ended[e], c.Tag) })
	must.Get(e.q.Submit(context.Background(), s, &p, reactor.NonBlock))(k.t)
}

// wantLists steps k.a once. It checks the lengths of the lists that the queue of k.a posted in this
// step.
func (k *keptBed) wantLists(when string, want ...int) {
	k.t.Helper()
	clear(k.lists)
	k.a.r.Step()
	if got := k.lists[k.a.q.QP()]; len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		k.t.Errorf("%s: lists of %v were posted, want %v", when, got, want)
	}
}

// Rule: a send of a queue without outstanding sends is posted at once. Later sends are delayed.
// They are posted, in order, as soon as FlushBatch of them wait, FlushDelay has passed, all
// outstanding sends have completed, or Flush is called.
func TestFewSendsAreKeptBehindOthers(t *testing.T) {
	k := newKeptBed(t, keepDelay)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("alone", 1)
	k.post(k.a, 1)
	k.wantLists("behind one that is out")
	if next, want := k.a.r.NextTimer(), k.clock.now.Add(keepDelay); !next.Equal(want) {
		t.Errorf("the next timer is at %v, want %v: a send is kept till then", next, want)
	}
	k.clock.now = k.clock.now.Add(keepDelay - 1)
	k.post(k.a, 2)
	k.wantLists("before the time of the first is up")
	k.clock.now = k.clock.now.Add(1)
	k.wantLists("when it is up", 2)
	for tag := range uint64(keepBatch) {
		k.post(k.a, 3+tag)
	}
	k.wantLists("a whole batch", keepBatch)
	k.post(k.a, 7)
	k.wantLists("behind the batch")
	k.lets = true
	k.wantLists("while those before complete")
	k.wantLists("when all have completed", 1)
	k.lets = false
	k.post(k.a, 8)
	k.wantLists("alone again", 1)
	k.post(k.a, 9)
	k.wantLists("one more is kept")
	clear(k.lists)
	k.a.do(t, func() {
		k.a.r.Flush()
		if got := k.lists[k.a.q.QP()]; len(got) != 1 {
			t.Errorf("when Flush returned lists of %v were posted, want one", got)
		}
	})
	if got := k.lists[k.a.q.QP()]; len(got) != 1 {
		t.Errorf("Flush posted lists of %v, want one", got)
	}
	k.lets = true
	k.a.r.Step()
	for i, tag := range k.ended[k.a] {
		if tag != uint64(i) {
			t.Fatalf("they ended in the order %v", k.ended[k.a])
		}
	}
	if s := k.a.r.Stats(); len(k.ended[k.a]) != 10 || s.Delayed != 3 || s.Overdue != 1 {
		t.Errorf("%d of 10 ended; kept back %d times, %d of them overdue, want 3 and 1", len(k.ended[k.a]), s.Delayed, s.Overdue)
	}
}

// Rule: sends are delayed even if FlushDelay is only 1 ns. A Step that only delays a send reports
// that it did something.
func TestTheShortestDelay(t *testing.T) {
	k := newKeptBed(t, 1)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("alone", 1)
	k.post(k.a, 1)
	if did, n := k.a.r.Step(), k.a.r.Snapshot().Delayed; !did || n != 1 {
		t.Errorf("behind one that is out: Step got %t with %d delayed, want true with 1", did, n)
	}
	k.clock.now = k.clock.now.Add(1)
	k.wantLists("when the time is up", 1)
}

// Rule: if a queue is sealed or released, its delayed sends end with the cause and are never
// posted. The queue is idle only when all its delayed and outstanding sends have ended.
func TestKeptSendsEndWithTheirQueue(t *testing.T) {
	for _, how := range []string{"seal", "release"} {
		k := newKeptBed(t, keepDelay)
		k.lets = false
		k.post(k.a, 0)
		k.wantLists("alone", 1)
		k.post(k.a, 1)
		k.post(k.a, 2)
		k.wantLists("two behind it")
		idle := false
		k.a.q.SendsIdle(func() { idle = true })
		if how == "seal" {
			k.a.q.Fail(errKept)
			k.a.q.Seal()
			k.wantLists("sealed")
			if got := k.ended[k.a]; len(got) != 2 || idle {
				t.Errorf("%s: the sends %v have ended, idle %v, want the two that were kept, and not idle", how, got, idle)
			}
			k.lets = true
			k.wantLists("the device gives back the other")
		} else {
			k.a.do(t, func() {
				k.a.releaseHeld(t, errKept)
				if got := k.ended[k.a]; len(got) != 3 {
					t.Errorf("when Release returned the sends %v had ended, want 3", got)
				}
			})
		}
		if got := k.ended[k.a]; len(got) != 3 || !idle {
			t.Errorf("%s: the sends %v have ended, idle %v, want 3 of them and idle", how, got, idle)
		}
	}
}

// Rule: a queue with a delayed send is not idle, even if no send is outstanding.
func TestAQueueWithKeptSendsIsNotIdle(t *testing.T) {
	k := newKeptBed(t, keepDelay)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("alone", 1)
	k.post(k.a, 1)
	idle := false
	k.a.q.SendsIdle(func() { idle = true })
	k.lets = true
	k.wantLists("one is kept while the other completes")
	if idle {
		t.Error("idle, with a send that was kept and not posted")
	}
	k.wantLists("the one that was kept", 1)
	if !idle {
		t.Error("not idle when all have ended")
	}
}

// Rule: sends are posted when the diagram in post_delay.go says so: in the order of submission, and
// in at most one list for each queue and pass. Submissions, completions and times are random.
func TestKeepingAgreesWithItsRule(t *testing.T) {
	rng := testRand(t)
	k := newKeptBed(t, keepDelay)
	type model struct {
		e         *end
		out, kept int
		tags      uint64
		since     time.Time
	}
	queues := []*model{{e: k.a}, {e: k.more}}
	for step := range 20_000 {
		k.clock.now = k.clock.now.Add(time.Duration(rng.IntN(int(keepDelay / 2))))
		k.lets = rng.IntN(4) == 0
		flush := rng.IntN(20) == 0
		want := map[verbs.QP]int{}
		for _, m := range queues {
			news := max(min(rng.IntN(4)-1, keepDepth-m.out-m.kept), 0)
			for range news {
				k.post(m.e, m.tags)
				m.tags++
			}
			if m.kept == 0 {
				m.since = k.clock.now
			}
			m.kept += news
			young := k.clock.now.Sub(m.since) < keepDelay
			if m.kept > 0 && (flush || m.out == 0 || m.kept >= keepBatch || m.kept+m.out >= keepDepth || !young) {
				want[m.e.q.QP()] = m.kept
				m.out, m.kept = m.out+m.kept, 0
			}
			if k.lets {
				m.out = 0
			}
		}
		clear(k.lists)
		if flush {
			k.a.do(t, k.a.r.Flush)
			k.lets = false
		} else {
			k.a.r.Step()
		}
		for _, m := range queues {
			qp := m.e.q.QP()
			if got := k.lists[qp]; len(got) > 1 || len(got) == 1 && got[0] != want[qp] || len(got) == 0 && want[qp] > 0 {
				t.Fatalf("step %d: lists of %v, want %d (0: none); %d are out, %d kept", step, got, want[qp], m.out, m.kept)
			}
			if ended := len(k.ended[m.e]); ended != int(m.tags)-m.out-m.kept {
				t.Fatalf("step %d: %d have ended, want %d", step, ended, int(m.tags)-m.out-m.kept)
			}
		}
	}
	for _, m := range queues {
		for i, tag := range k.ended[m.e] {
			if tag != uint64(i) {
				t.Fatalf("number %d ended as number %d", tag, i)
			}
		}
	}
}

// Rule: the holder posts all delayed sends before it gives the turn up. So a send behind one that
// never completes is posted, even if no goroutine submits or awaits. The rule holds under each
// policy.
func TestNothingIsKeptByWhoSleeps(t *testing.T) {
	onlySoft(t, "a device cannot be kept from completing")
	for _, policy := range []reactor.Policy{reactor.PolicyEconomy, reactor.PolicyThroughput} {
		var posted atomic.Int64
		first, all := make(chan struct{}), make(chan struct{})
		a, b, h := hookedPair(t, reactor.Config{Policy: policy, FlushDelay: time.Millisecond, FlushBatch: 100, Recheck: -1}, reactor.QueueConfig{})
		h.set(func(inner verbs.Context, tn *verbs.IOBatch) error {
			n := 0
			for _, g := range tn.Sends {
				n += g.Count
			}
			tn.Polls, tn.Arms = nil, nil // no completion is polled, and no event wakes the loop
			err := inner.Execute(tn)
			switch before := posted.Load(); posted.Add(int64(n)) {
			case before:
			case 1:
				close(first)
			case 3:
				close(all)
			}
			return err
		})
		s, p := a.write(b)
		s.Sink = called(func(reactor.Completion, error) {})
		for range 3 {
			must.Get(a.q.Submit(context.Background(), s, &p, reactor.Block))(t)
			comes(t, "the post of the first, which stays out", first)
		}
		comes(t, "the posts of the others", all)
		h.hook.Store(nil)
		a.close(t)
		b.close(t)
	}
}
