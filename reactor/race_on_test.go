//go:build race

package reactor_test

// raceEnabled reports whether the race detector is on. Under the race detector sync.Pool drops objects
// at random, so the tests do not limit the number of allocations. allocOps is the number of operations
// over which tests count allocations.
const (
	raceEnabled = true
	allocOps    = 10_000
)
