//go:build !race

package runtime

const (
	raceEnabled = false
	allocOps    = 250_000
	stressOps   = 200_000 // of TestConcurrentStress; `make stress` sets VERBENA_STRESS_OPS to ten million
	chaosRounds = 100
)

// simOps is the default number of operations of TestSimulation. It is enough to cover every kind of
// operation and event. `make stress` simulates ten million operations. simReplayOps is the number
// of operations in one simulation of TestSimulationReplays, which runs several simulations.
const (
	simOps       = simCoverage
	simReplayOps = 100_000
)
