//go:build !race

package reactor_test

const (
	raceEnabled = false
	allocOps    = 1_000_000
)
