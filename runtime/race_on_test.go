//go:build race

package runtime

// Under the race detector sync.Pool drops objects at random, so tests do not count allocations.
const (
	raceEnabled = true
	allocOps    = 2_000
	stressOps   = 40_000
	chaosRounds = 30 // a few are enough: the detector reports a race even if the accesses did not collide
)

// The simulation runs on one goroutine, so it has no races. The detector makes it ten times slower,
// and has one effect on it: sync.Pool drops objects. A short run is enough to cover this effect.
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
