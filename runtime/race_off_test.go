//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 250_000
	chaosRounds = 100
)

// The number of simulated operations: enough to cover everything, and less for the repeated runs.
// `make stress` simulates ten million.
const (
	simOps       = simCoverage
	simReplayOps = 100_000
)
