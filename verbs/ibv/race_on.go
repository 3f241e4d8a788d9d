//go:build race

package ibv

// raceEnabled: Execute shows the race detector the objects it uses, see used, and pools drop
// their contents.
const raceEnabled = true
