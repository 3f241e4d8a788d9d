//go:build race

package runtime

// Pools drop objects at random under the race detector: nothing is asserted
// about allocations there.
const (
	raceEnabled = true
	allocOps    = 2_000
)
