//go:build race && !verbena_model

package turn

const poolsDropAtRandom = true
