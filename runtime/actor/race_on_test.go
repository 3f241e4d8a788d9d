//go:build race

package actor

// raceEnabled reports that the race detector is on.
const raceEnabled = true
