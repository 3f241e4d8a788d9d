//go:build race && !verbena_model

package turn

// poolsDropAtRandom reports whether sync.Pool drops objects at random. Under the race detector it does.
const poolsDropAtRandom = true
