//go:build !race

package reactor_test

// raceEnabled reports whether the race detector is on. allocOps is the number of operations over which
// tests count allocations.
const (
	raceEnabled = false
	allocOps    = 250_000
)
