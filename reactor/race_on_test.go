//go:build race

package reactor_test

// Under the race detector sync.Pool drops objects at random, so no test limits the number of
// allocations.
const (
	raceEnabled = true
	allocOps    = 10_000
)
