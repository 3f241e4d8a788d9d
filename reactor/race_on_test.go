//go:build race

package reactor_test

// Under the race detector sync.Pool drops objects at random: no test asserts allocations there.
const (
	raceEnabled = true
	allocOps    = 10_000
)
