//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 1_000_000
)
