//go:build race

package runtime

// Under the race detector sync.Pool drops objects at random: no test asserts allocations there.
const (
	raceEnabled = true
	allocOps    = 2_000
	chaosRounds = 30 // the detector finds races that the order permits, not only those that happen
)

// The race detector makes everything ten times slower, and one goroutine has no races: the run only
// covers the detector's effects (pools that drop objects).
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
