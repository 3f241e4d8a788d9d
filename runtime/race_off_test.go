//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 250_000
	chaosRounds = 100
)

// simOps is the default number of operations of TestSimulation, and is enough to cover everything.
// `make stress` simulates ten million. simReplayOps is for TestSimulationReplays, which simulates
// several times.
const (
	simOps       = simCoverage
	simReplayOps = 100_000
)
