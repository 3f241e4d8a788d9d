//go:build race

package actor

// raceEnabled tells tests that the race detector is on.
const raceEnabled = true
