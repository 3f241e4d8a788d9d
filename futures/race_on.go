//go:build race || verbena_model

package futures

// careful turns off early reads; see lightly. A variable, because the model explores both ways.
var careful = true
