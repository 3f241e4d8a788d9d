//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 250_000
	chaosRounds = 100
)

// How much is simulated: enough to meet everything, and what the repeated runs take.
// `make stress` simulates ten million.
const (
	simOps       = simCoverage
	simReplayOps = 100_000
)
