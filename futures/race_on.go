//go:build race

package futures

// careful: see lightly.
const careful = true
