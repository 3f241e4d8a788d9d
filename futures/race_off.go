//go:build !race && !verbena_model

package futures

// careful: see lightly.
const careful = false
