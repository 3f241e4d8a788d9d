//go:build race

package runtime

// The race detector makes everything ten times slower, and one goroutine has no
// races: the run is here for what the detector changes (pools that drop objects).
const (
	simOps       = 50_000
	simReplayOps = 8_000
)
