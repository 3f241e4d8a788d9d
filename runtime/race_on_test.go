//go:build race

package runtime

// These constants are the sizes of tests under the race detector. raceEnabled switches off the checks of
// allocations. Under the detector these checks would fail: sync.Pool drops objects at random, and code
// makes additional allocations.
const (
	raceEnabled = true
	allocOps    = 2_000  // operations of each subtest of TestOperationsAllocateNothing
	stressOps   = 40_000 // operations of TestConcurrentStress
	// chaosRounds is the number of rounds of TestChaosAtTheEnd. A few rounds are enough, because the
	// detector reports unsynchronized accesses even if they do not happen at the same moment.
	chaosRounds = 30
)

// simOps and simReplayOps are the numbers of operations of TestSimulation and TestSimulationReplays. Both
// tests run the simulation on one goroutine, so there are no races to find. The detector only makes
// sync.Pool drop objects, which a short run covers. The detector makes a simulation ten times slower, so
// these numbers are small.
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
