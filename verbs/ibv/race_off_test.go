//go:build !race

package ibv

// raceEnabled: the race detector lets pools drop what they hold.
const raceEnabled = false
