//go:build race

package ibv

// raceEnabled: turns show the race detector what they use, see
// deviceContext.used, and pools drop what they hold.
const raceEnabled = true
