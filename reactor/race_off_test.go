//go:build !race

package reactor_test

const (
	raceEnabled = false
	allocOps    = 250_000
)
