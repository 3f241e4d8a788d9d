//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 1_000_000
)

// How much is simulated: the whole million, and what the repeated runs take.
const (
	simOps       = 1_000_000
	simReplayOps = 200_000
)
