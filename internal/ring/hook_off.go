//go:build !verbena_model

package ring

// yield stands before a step that others may see: the model build (hook_model.go)
// lets them go first there. Here it is nothing, and costs nothing.
func yield() {}

// fresh is a yield where nothing that was read before has any influence any more.
func fresh() {}
