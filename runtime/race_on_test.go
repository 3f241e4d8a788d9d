//go:build race

package runtime

// Under the race detector sync.Pool drops objects at random, so tests do not count allocations.
const (
	raceEnabled = true
	allocOps    = 2_000
	chaosRounds = 30 // few are enough: the detector also reports races that did not happen in the run
)

// The simulation runs on one goroutine and so has no races; the detector makes it ten times slower.
// A short run is enough to cover the one effect of the detector: a sync.Pool that drops objects.
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
