package runtime

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// simCoverage is from how many operations on a run must have met everything.
const simCoverage = 500_000

// fromEnv reads a number from the environment.
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

// simulate runs one world, and fails t with the seed if a rule is broken.
func simulate(t testing.TB, seed uint64, ops int) (hash uint64, w *simWorld) {
	notOnDevice(t, "virtual time")
	t.Helper()
	before, err := leak.Take()
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("opening the runtimes started %d goroutines:\n%s", len(started), strings.Join(started, "\n"))
	}
	hash = w.run()
	if err := before.Check(0); err != nil { // at once: nothing of it runs any more
		t.Error(err)
	}
	return hash, w
}

// Rule: whatever the link and the peers do, each operation completes exactly
// once; what succeeded has had its effect, once and in order; nothing is written
// to memory whose lease ended; and after the end nothing is left.
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
			t.Errorf("%s: %d succeeded and %d failed: the run does not show what it should", opKindNames[k], c[outcomeOK], c[outcomeFailed])
		}
	}
	for k, c := range w.ways {
		if c.begun == 0 || c.refused == 0 || c.short == 0 && k >= wayDoAll {
			t.Errorf("%s: %+v: the run does not show what it should", simWayNames[k], c)
		}
	}
	for e, n := range w.events {
		if n == 0 {
			t.Errorf("%s never happened: the run does not show what it should", simEventNames[e])
		}
	}
}

// Rule: the same seed gives the same packets and the same outcomes, bit for bit;
// another seed gives others.
func TestSimulationReplays(t *testing.T) {
	seed := fromEnv(t, "VERBENA_SIM_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_SIM_SEED=%d", seed)
	first, a := simulate(t, seed, simReplayOps)
	second, b := simulate(t, seed, simReplayOps)
	if first != second || a.trace.packets != b.trace.packets {
		t.Errorf("seed %d gave %016x (%d packets) and then %016x (%d packets)", seed, first, a.trace.packets, second, b.trace.packets)
	}
	if other, _ := simulate(t, seed+1, simReplayOps/4); other == first {
		t.Errorf("seeds %d and %d gave the same hash", seed, seed+1)
	}
}
