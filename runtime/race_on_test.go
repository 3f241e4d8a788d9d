//go:build race

package runtime

// Pools drop objects at random under the race detector: nothing is asserted
// about allocations there.
const (
	raceEnabled = true
	allocOps    = 2_000
	chaosRounds = 30 // the detector sees what an order allows, and not only what it did
)

// The race detector makes everything ten times slower, and one goroutine has no
// races: the run is here for what the detector changes (pools that drop objects).
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
