//go:build race || verbena_model

package futures

// careful: see lightly. A variable, because the model explores both ways.
var careful = true
