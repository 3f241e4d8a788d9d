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
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

var errKept = errors.New("the test ends the queue")

// keepDelay, keepBatch and keepDepth are FlushDelay, FlushBatch and SendDepth in these tests.
const (
	keepDelay = 10 * time.Microsecond
	keepBatch = 4
	keepDepth = 12
)

// keptBed is a pair of stepped reactors that delay sends. While keptBed.lets is false, polls of the
// device of end a return no completions. While it is true, a pass polls the completions of all sends that were
// posted until then, those of the pass included.
type keptBed struct {
	t     *testing.T
	a, b  *end
	more  *end // a second queue on the reactor of a
	clock *clock
	lets  bool               // polls of a's device return completions
	lists map[verbs.QP][]int // by queue pair of a's device: the lengths of the lists posted since lists was last cleared
	ended map[*end][]uint64  // by end: the tags of its ended sends, in the order in which they ended
}

func newKeptBed(t *testing.T, delay time.Duration) *keptBed {
	onlySoft(t, "the test decides when sends complete, which it cannot do on a device")
	// On virtual time nothing but the hook runs the devices. (On real time another goroutine may run them at any
	// moment, for a timer, and a pass then finds its completions in the next one.)
	fab := fabric.New(fabric.Config{Virtual: true})
	k := &keptBed{t: t, clock: &clock{time.Unix(1_700_000_000, 0)}, lists: map[verbs.QP][]int{}, ended: map[*end][]uint64{}, lets: true}
	cfg := reactor.Config{Stepped: true, Now: k.clock.Now, FlushDelay: delay, FlushBatch: keepBatch}
	qc := reactor.QueueConfig{SendDepth: keepDepth, SignalEvery: 3}
	var h *hooked
	k.a, k.b = bedOf(t, fab).pair(t, cfg, qc, func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
	k.more = k.a.another(t, qc)
	peer := k.b.another(t, qc)
	k.more.ready(t, peer)
	peer.ready(t, k.more)
	h.set(func(inner verbs.Context, tn *verbs.IOBatch) error {
		for _, g := range tn.Sends {
			k.lists[g.QP] = append(k.lists[g.QP], g.Count)
		}
		polls := tn.Polls
		tn.Polls = nil
		if err := inner.Execute(tn); err != nil {
			return err
		}
		for fab.Step() {
		}
		if !k.lets {
			return nil
		}
		tn.Polls = polls
		return inner.Execute(&verbs.IOBatch{Polls: polls})
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

// post submits a WRITE with the given tag on the queue of e.
func (k *keptBed) post(e *end, tag uint64) {
	k.t.Helper()
	s, p := e.write(k.b)
	s.Tag = tag
	s.Sink = called(func(c reactor.Completion, _ error) { k.ended[e] = append(k.ended[e], c.Tag) })
	must.Get(e.q.Submit(context.Background(), s, &p, reactor.NonBlock))(k.t)
}

// wantLists calls Step once on the reactor of k.a, and checks the lengths of the lists that the queue of
// k.a posted in this Step.
func (k *keptBed) wantLists(when string, want ...int) {
	k.t.Helper()
	clear(k.lists)
	k.a.r.Step()
	if got := k.lists[k.a.q.QP()]; len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		k.t.Errorf("%s: the Step posted lists of %v sends, want %v", when, got, want)
	}
}

// Rule: a send of a queue without outstanding sends is posted at once. While sends are outstanding,
// the queue's next sends are delayed. The delayed sends are posted, in order, as soon as FlushBatch of
// them wait, FlushDelay has passed, all outstanding sends have completed, or Flush is called.
func TestFewSendsAreKeptBehindOthers(t *testing.T) {
	k := newKeptBed(t, keepDelay)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("a send while no send is outstanding", 1)
	k.post(k.a, 1)
	k.wantLists("a send behind an outstanding send")
	if next, want := k.a.r.NextTimer(), k.clock.now.Add(keepDelay); !next.Equal(want) {
		t.Errorf("NextTimer returned %v, want %v, when the delayed send must be posted", next, want)
	}
	k.clock.now = k.clock.now.Add(keepDelay - 1)
	k.post(k.a, 2)
	k.wantLists("before FlushDelay has passed for the first delayed send")
	k.clock.now = k.clock.now.Add(1)
	k.wantLists("when FlushDelay has passed", 2)
	for tag := range uint64(keepBatch) {
		k.post(k.a, 3+tag)
	}
	k.wantLists("FlushBatch sends behind outstanding sends", keepBatch)
	k.post(k.a, 7)
	k.wantLists("a send behind the FlushBatch sends")
	k.lets = true
	k.wantLists("in the pass that polls the completions of the outstanding sends")
	k.wantLists("in the pass after these completions", 1)
	k.lets = false
	k.post(k.a, 8)
	k.wantLists("a send after all earlier sends have completed", 1)
	k.post(k.a, 9)
	k.wantLists("another send behind an outstanding send")
	clear(k.lists)
	k.a.do(t, func() {
		k.a.r.Flush()
		if got := k.lists[k.a.q.QP()]; len(got) != 1 {
			t.Errorf("when Flush returned, lists of %v sends had been posted, want one list", got)
		}
	})
	if got := k.lists[k.a.q.QP()]; len(got) != 1 {
		t.Errorf("after Flush and the passes that follow it, lists of %v sends had been posted, want one list", got)
	}
	k.lets = true
	k.a.r.Step()
	for i, tag := range k.ended[k.a] {
		if tag != uint64(i) {
			t.Fatalf("the sends ended in the order %v, want the order of submission", k.ended[k.a])
		}
	}
	if s := k.a.r.Stats(); len(k.ended[k.a]) != 10 || s.Delayed != 3 || s.Overdue != 1 {
		t.Errorf("%d sends ended, Stats.Delayed is %d and Stats.Overdue is %d; want 10, 3 and 1", len(k.ended[k.a]), s.Delayed, s.Overdue)
	}
}

// Rule: sends are delayed even if FlushDelay is only 1 ns. A Step that does nothing but delay a send
// returns true.
func TestTheShortestDelay(t *testing.T) {
	k := newKeptBed(t, 1)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("a send while no send is outstanding", 1)
	k.post(k.a, 1)
	if did, n := k.a.r.Step(), k.a.r.Snapshot().Delayed; !did || n != 1 {
		t.Errorf("a send behind an outstanding send: Step returned %t and Stats.Delayed is %d, want true and 1", did, n)
	}
	k.clock.now = k.clock.now.Add(1)
	k.wantLists("when FlushDelay has passed", 1)
}

// Rule: if a queue is sealed or released, its delayed sends end with the cause and are never
// posted. The queue is idle only when all its delayed and outstanding sends have ended.
func TestKeptSendsEndWithTheirQueue(t *testing.T) {
	for _, how := range []string{"seal", "release"} {
		k := newKeptBed(t, keepDelay)
		k.lets = false
		k.post(k.a, 0)
		k.wantLists("a send while no send is outstanding", 1)
		k.post(k.a, 1)
		k.post(k.a, 2)
		k.wantLists("two sends behind an outstanding send")
		idle := false
		k.a.q.SendsIdle(func() { idle = true })
		if how == "seal" {
			k.a.q.Fail(errKept)
			k.a.q.Seal()
			k.wantLists("in the pass after Seal")
			if got := k.ended[k.a]; len(got) != 2 || idle {
				t.Errorf("%s: the ended sends are %v with idle = %t, want the 2 delayed sends with idle = false", how, got, idle)
			}
			k.lets = true
			k.wantLists("in the pass that polls the completion of the outstanding send")
		} else {
			k.a.do(t, func() {
				k.a.releaseHeld(t, errKept)
				if got := k.ended[k.a]; len(got) != 3 {
					t.Errorf("when Release returned, the sends %v had ended, want all 3", got)
				}
			})
		}
		if got := k.ended[k.a]; len(got) != 3 || !idle {
			t.Errorf("%s: the ended sends are %v with idle = %t, want all 3 sends with idle = true", how, got, idle)
		}
	}
}

// Rule: a queue with a delayed send is not idle, even if no send is outstanding.
func TestAQueueWithKeptSendsIsNotIdle(t *testing.T) {
	k := newKeptBed(t, keepDelay)
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("a send while no send is outstanding", 1)
	k.post(k.a, 1)
	idle := false
	k.a.q.SendsIdle(func() { idle = true })
	k.lets = true
	k.wantLists("in the pass that polls the completion of the first send")
	if idle {
		t.Error("SendsIdle called its function before the delayed send was posted, want the call after this send has ended")
	}
	k.wantLists("in the pass after this completion", 1)
	if !idle {
		t.Error("all sends have ended, but SendsIdle did not call its function, want a call")
	}
}

// Rule: a receive of PostRecvLater is posted with the queue's next list of sends, also if the pass posts the list because
// its delay is over, and the queue is not on the ready list. (The bug: the frame that told the peer of the receive was
// posted, and the receive was not.)
func TestDelayedSendsBringTheirReceives(t *testing.T) {
	k := newKeptBed(t, keepDelay)
	before := k.a.r.Stats().RecvRequests // not later: Stats takes the turn, and then posts delayed sends
	k.lets = false
	k.post(k.a, 0)
	k.wantLists("a send while no send is outstanding", 1)
	k.post(k.a, 1)
	k.wantLists("a send behind it")
	sink := called(func(reactor.Completion, error) {})
	must.Do(t, k.a.q.PostRecvLater(&reactor.Recv{Sink: sink}, nil))
	k.clock.now = k.clock.now.Add(2 * keepDelay)
	k.wantLists("when the delay is over", 1)
	if n := k.a.r.Stats().RecvRequests - before; n != 1 {
		t.Errorf("%d receives were posted with the delayed send, want 1", n)
	}
	k.lets = true
}

// Rule: a queue posts its sends when the diagram in post_delay.go says so, in the order of submission,
// and in at most one list in each pass. In this test submissions, completions and times are random.
func TestKeepingAgreesWithItsRule(t *testing.T) {
	rng := testRand(t)
	k := newKeptBed(t, keepDelay)
	type model struct {
		e         *end
		out, kept int       // the numbers of outstanding and of delayed sends
		tags      uint64    // how many sends were submitted
		since     time.Time // when the delay of the oldest delayed send began
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
				t.Fatalf("step %d: lists of %v sends were posted, want one list of %d (0: no list); after this step the model has %d outstanding and %d delayed sends", step, got, want[qp], m.out, m.kept)
			}
			if ended := len(k.ended[m.e]); ended != int(m.tags)-m.out-m.kept {
				t.Fatalf("step %d: %d sends have ended, want %d", step, ended, int(m.tags)-m.out-m.kept)
			}
		}
	}
	for _, m := range queues {
		for i, tag := range k.ended[m.e] {
			if tag != uint64(i) {
				t.Fatalf("send %d ended at position %d, want the order of submission", tag, i)
			}
		}
	}
}

// Rule: before the loop sleeps, it posts all delayed sends. So a delayed send is posted even if the send
// before it never completes and no goroutine submits or awaits. The test covers PolicyEconomy and
// PolicyThroughput.
func TestNothingIsKeptByWhoSleeps(t *testing.T) {
	onlySoft(t, "the test keeps sends outstanding, which it cannot do on a device")
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
			comes(t, "the posting of the first send, which stays outstanding", first)
		}
		comes(t, "the posting of the other sends", all)
		h.hook.Store(nil)
		a.close(t)
		b.close(t)
	}
}
