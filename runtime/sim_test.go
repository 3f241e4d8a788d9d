package runtime

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// A run with at least simCoverage operations must contain every kind of operation, every way to start
// an operation, and every event.
const simCoverage = 500_000

// fromEnv returns the number in an environment variable, or fallback if the variable is not set.
func fromEnv(t testing.TB, name string, fallback uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return fallback
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, s)
	}
	return v
}

// simulate runs one simulation. If a rule is broken, it fails t and logs the seed.
func simulate(t testing.TB, seed uint64, ops int) (hash uint64, w *simWorld) {
	notOnDevice(t, "the test needs virtual time")
	t.Helper()
	before := must.Get(leak.Take())(t)
	defer func() {
		if f := recover(); f != nil {
			broken, ours := f.(simFailure)
			if !ours {
				t.Logf("replay with VERBENA_SIM_SEED=%d VERBENA_SIM_OPS=%d", seed, ops)
				panic(f)
			}
			t.Fatalf("%s\nreplay with VERBENA_SIM_SEED=%d VERBENA_SIM_OPS=%d", broken.why, seed, ops)
		}
	}()
	w = newSimWorld(seed, ops)
	if started := before.Started(); len(started) > 0 {
		t.Errorf("opening the runtimes started %d goroutines, want none:\n%s", len(started), strings.Join(started, "\n"))
	}
	hash = w.run()
	if err := before.Check(time.Second); err != nil { // the goroutines of Close have done their work, and may be about to end
		t.Error(err)
	}
	return hash, w
}

// Rule: whatever the link and the peers do, each operation completes exactly once. Successful
// operations have their effect exactly once, in order. Nothing is written to memory whose lease has
// ended. In the end no object is left.
func TestSimulation(t *testing.T) {
	seed := fromEnv(t, "VERBENA_SIM_SEED", uint64(time.Now().UnixNano()))
	ops := int(fromEnv(t, "VERBENA_SIM_OPS", simOps))
	t.Logf("VERBENA_SIM_SEED=%d VERBENA_SIM_OPS=%d", seed, ops)
	start := time.Now()
	hash, w := simulate(t, seed, ops)
	t.Logf("trace hash %016x after %v", hash, time.Since(start).Round(time.Millisecond))
	w.report(t)
	if ops < simCoverage {
		return
	}
	for k, c := range w.counts {
		if c[outcomeOK] == 0 && opKind(k) != opWrongKey && opKind(k) != opDeadKey || c[outcomeFailed] == 0 {
			t.Errorf("%s: %d operations succeeded and %d failed, want at least one of each (with an invalid key: at least one failure)", opKindNames[k], c[outcomeOK], c[outcomeFailed])
		}
	}
	for k, c := range w.ways {
		if c.begun == 0 || c.refused == 0 || c.short == 0 && k >= wayDoAll {
			t.Errorf("operations started with %s: %+v, want begun and refused above 0, and with DoAll also short", simWayNames[k], c)
		}
	}
	for e, n := range w.events {
		if n == 0 {
			t.Errorf("the run has no event %q, want at least one", simEventNames[e])
		}
	}
}

// Rule: the same seed gives the same packets and outcomes, bit for bit. Another seed gives other
// packets and outcomes.
func TestSimulationReplays(t *testing.T) {
	seed := fromEnv(t, "VERBENA_SIM_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_SIM_SEED=%d", seed)
	first, a := simulate(t, seed, simReplayOps)
	second, b := simulate(t, seed, simReplayOps)
	if first != second || a.trace.packets != b.trace.packets {
		t.Errorf("seed %d gave the hash %016x (%d packets) and then the hash %016x (%d packets), want the same hash and number of packets", seed, first, a.trace.packets, second, b.trace.packets)
	}
	if other, _ := simulate(t, seed+1, simReplayOps/4); other == first {
		t.Errorf("seeds %d and %d gave the same hash, want different hashes", seed, seed+1)
	}
}

// The following functions end a simulation and report on it.

// simPatience is longer, in virtual time, than the simulation can need to end everything. The longest
// single waits are simHold (10 s), the bound of sends (simPeerTimeout and an eighth of it, 5.6 s), and
// the connect timeout (5 s).
const simPatience = 60 * time.Second

// finish makes the links healthy, closes everything, and checks that nothing is left.
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
			w.fail("%v after the run, not everything has ended: %s", simPatience, w.left())
		}
		if !busy {
			w.advance(time.Second)
		}
	}
	for _, n := range w.nodes {
		n.close()
	}
	if o := w.prov.CMObjects(); !o.Zero() {
		w.fail("after the run, objects of the connection manager are left: %v", o)
	}
}

// left() describes everything that has not ended.
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

// report logs the statistics of the run.
func (w *simWorld) report(t testing.TB) {
	t.Logf("%d operations in %v of virtual time; %d connections; %d ends or dials failed or were closed; %d calls of Cancel; %d packets",
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
	t.Logf("  started with         %9s %9s %9s", "started", "refused", "in part")
	for k, c := range w.ways {
		t.Logf("  %-20s %9d %9d %9d", simWayNames[k], c.begun, c.refused, c.short)
	}
	t.Logf("  operation            %9s %9s %9s %9s", "succeeded", "failed", "given up", "refused")
	for k, c := range w.counts {
		t.Logf("  %-20s %9d %9d %9d %9d", opKindNames[k], c[outcomeOK], c[outcomeFailed], c[outcomeGivenUp], c[outcomeRefused])
	}
}

// simPause is the number of operations between two calls of settleAll.
const simPause = 10_000

// settleAll makes the links healthy. It starts no new sends until all sends of healthy connections have
// completed and all messages were received. Then it checks that no credit or slot is missing. Without
// this check, a missing credit or slot would not be noticed, because it only makes a connection slower.
func (w *simWorld) settleAll() {
	w.heal()
	w.fab.SetAll(fabric.Link{})
	w.heavy = false
	var calm []*simPair
	for limit := w.now() + simPatience; ; {
		quiet := true
		calm = calm[:0]
		for _, p := range w.pairs {
			if p.well() { // the other connections may begin and end in this time
				quiet = p.settled() && quiet
				calm = append(calm, p)
			}
		}
		for n := 0; n < 50 && w.turn(); n++ {
		}
		w.collect()
		if quiet {
			break
		}
		if w.now() > limit {
			w.fail("after %v with healthy links, not all sends have completed: %s", simPatience, w.left())
		}
		w.advance(10 * time.Millisecond)
	}
	for _, p := range calm {
		p.checkCredits()
	}
	for _, p := range calm {
		for _, e := range p.ends {
			if p.well() && !e.cutOff {
				e.checkRoom()
			}
		}
	}
	w.calmAt = w.now() // from now on changeLink may give the links other faults
}

// well() reports whether both ends of the pair exist and are healthy. An end is not healthy if it has
// failed, is closing, is mute, or has a queue pair in ERR.
func (p *simPair) well() bool {
	for _, e := range p.ends {
		if e == nil || e.gone || e.closing || e.killed || e.flushedAt != 0 || e.c.Err() != nil || p.muted() {
			return false
		}
	}
	return true
}

// settled() reports whether all sends of a healthy pair have completed and all messages were received.
// It also releases the messages that the pair holds, and starts receives for the messages that were
// not received yet.
func (p *simPair) settled() bool {
	done := true
	for _, e := range p.ends {
		e.releaseHeld(true)
		if missing := len(e.in().sent); missing > 0 {
			switch {
			case !p.raw && len(e.wants) == 0:
				e.wants = append(e.wants, e.c.Recv())
				e.w.issued++
			case p.raw && e.shares():
				if s := e.n.srq; s.posted < min(s.due(), simSharedDepth) {
					s.post()
				}
			case p.raw && len(e.recvs) < missing:
				e.postRecv()
			}
			done = false
		}
		done = done && len(e.ops)+len(e.joined) == 0
	}
	return done && p.ends[0].silent() && p.ends[1].silent()
}

// silent() reports whether the end has no outstanding send and no credit update to send.
func (e *simEnd) silent() bool {
	silent := false
	e.c.q.SendsIdle(func() { silent = true })                                     // if no send is outstanding, SendsIdle calls the function at once
	return silent && (e.c.ledger.unreturned() < e.c.updateAt() || e.c.updateHeld) // the peer has the credits of the last update
}

// checkCredits checks that no credit is lost. Each credit is at the sender, or is one that the receiver
// has not returned yet.
func (p *simPair) checkCredits() {
	if p.raw || !p.well() {
		return
	}
	for i, e := range p.ends {
		peer := p.ends[1-i]
		have, owed, window := e.c.credits.available(), peer.c.ledger.unreturned(), int(peer.c.window.Load())
		if most := peer.c.mostCredits(); window > most {
			p.w.fail("%v: end %d has a window of %d, want at most %d", p, 1-i, window, most)
		}
		if have+owed != window {
			p.w.fail("%v: end %d has %d credits, and the peer has not returned %d; want %d in all", p, i, have, owed, window)
		}
	}
}

// checkRoom fills an idle send queue, and checks that one operation starts for each slot. If an
// operation cannot start, a slot was lost.
func (e *simEnd) checkRoom() {
	depth := e.c.opts.SendDepth
	for k := range depth + 1 {
		p := e.atomicWrite()
		if p == nil { // the peer's memory is gone
			return
		}
		before := len(e.ops)
		e.startBy(wayTryStart, p, SinkContext{})
		if started := len(e.ops) > before; started != (k < depth) {
			e.w.fail("%v: end %d had %d slots and no outstanding send; was operation %d started? %t, want %t", e.p, e.side, depth, k+1, started, k < depth)
		}
	}
}
