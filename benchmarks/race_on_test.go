//go:build race

package main

// raceEnabled: under the race detector sync.Pool randomly drops items.
const raceEnabled = true
