//go:build !race

package ibv

// raceEnabled: see race_on.go.
const raceEnabled = false
