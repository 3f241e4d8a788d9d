//go:build !race && !verbena_model

package futures

// careful turns off early reads; see lightly.
const careful = false
