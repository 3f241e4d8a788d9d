package runtime

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// How a world ends, and what it tells.

// patience of the end: nothing on virtual time takes longer. The longest chain is
// a retry count used up (0.6 s), a connect timeout (5 s) and the CM's repeats.
const simPatience = 60 * time.Second

// finish closes everything on a healthy link, and looks at what is left.
func (w *simWorld) finish() {
	w.heal()
	w.fab.SetAll(fabric.Link{})
	for _, n := range w.nodes {
		n.stopping = true
	}
	limit := w.now() + simPatience
	for {
		busy := false
		for n := 0; n < 50; n++ {
			if busy = w.turn(); !busy {
				break
			}
		}
		w.collect()
		idle := len(w.pairs) == 0 && len(w.orphans) == 0
		for _, n := range w.nodes {
			idle = n.finish() && idle
		}
		for _, p := range w.pairs {
			p.finish()
		}
		if idle {
			break
		}
		if w.now() > limit {
			w.fail("%v after the end: %s", simPatience, w.left())
		}
		if !busy {
			w.advance(time.Second)
		}
	}
	for _, n := range w.nodes {
		n.close()
	}
	if o := w.prov.CMObjects(); !o.Zero() {
		w.fail("the connection manager has left %v", o)
	}
}

// left says what did not end.
func (w *simWorld) left() string {
	var b strings.Builder
	for _, p := range w.pairs {
		fmt.Fprintf(&b, "\n%v", p)
	}
	fmt.Fprintf(&b, "\n%d orphans", len(w.orphans))
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "\n%s: listeners %v, live %d", n.name, n.ln, len(n.rt.live))
	}
	return b.String()
}

// report prints what the run was made of.
func (w *simWorld) report(t testing.TB) {
	t.Logf("%d operations in %v of virtual time; %d connections, %d failed, %d cancelled; %d packets",
		w.issued, w.now().Round(time.Millisecond), w.opened, w.blames, w.cancels, w.trace.packets)
	for v, n := range w.trace.fates {
		if n > 0 {
			t.Logf("  packets %-20v %9d", fabric.Verdict(v), n)
		}
	}
	t.Logf("  packets duplicated           %9d", w.trace.dups)
	for e, n := range w.events {
		t.Logf("  event   %-20s %9d", simEventNames[e], n)
	}
	t.Logf("  way                  %9s %9s %9s", "begun", "refused", "half-way")
	for k, c := range w.ways {
		t.Logf("  %-20s %9d %9d %9d", simWayNames[k], c.begun, c.refused, c.short)
	}
	t.Logf("  operation            %9s %9s %9s %9s", "succeeded", "failed", "given up", "refused")
	for k, c := range w.counts {
		t.Logf("  %-20s %9d %9d %9d %9d", opKindNames[k], c[outcomeOK], c[outcomeFailed], c[outcomeGivenUp], c[outcomeRefused])
	}
}
