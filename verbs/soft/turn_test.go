package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: one turn that posts to several queue pairs has all of them worked on, also
// when the engine is at rest.
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
	var turn verbs.Turn
	for i, e := range ends {
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		turn.Sends = append(turn.Sends, verbs.SendGroup{QP: e.qp, Head: wr.addr, Count: 1})
	}
	must(t, w.a.ctx.Turn(&turn))
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

// Rule: a post that finds the engine running leaves it to whoever runs it.
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
