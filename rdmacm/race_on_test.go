//go:build race

package rdmacm

const raceEnabled = true
