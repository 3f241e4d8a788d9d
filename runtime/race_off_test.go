//go:build !race

package runtime

// These constants are the sizes of tests without the race detector. If a comment names an environment
// variable, the variable replaces the constant. The command make stress sets these variables.
const (
	raceEnabled = false
	allocOps    = 250_000 // operations of each subtest of TestOperationsAllocateNothing
	stressOps   = 200_000 // operations of TestConcurrentStress (VERBENA_STRESS_OPS)
	chaosRounds = 100     // rounds of TestChaosAtTheEnd (VERBENA_CHAOS_ROUNDS)
)

// simOps is the number of operations of TestSimulation (VERBENA_SIM_OPS). So many operations cover every
// kind of operation and event. simReplayOps is the number of operations in each of the two simulations
// that TestSimulationReplays compares.
const (
	simOps       = simCoverage
	simReplayOps = 100_000
)
