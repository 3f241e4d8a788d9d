//go:build race

package reactor_test

// Pools drop objects at random under the race detector: nothing is asserted
// about allocations there.
const (
	raceEnabled = true
	allocOps    = 10_000
)
