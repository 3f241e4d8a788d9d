//go:build race

package main

// raceEnabled: under the race detector sync.Pool drops what it is given, at random.
const raceEnabled = true
