//go:build !race

package actor

// raceEnabled reports that the race detector is off.
const raceEnabled = false
