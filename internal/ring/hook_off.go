//go:build !verbena_model

package ring

// yield is where the model build (hook_model.go) lets others go first.
func yield() {}
