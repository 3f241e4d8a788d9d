//go:build race

package benchmarks

// raceEnabled: under the race detector sync.Pool drops what it is given, at random.
const raceEnabled = true
