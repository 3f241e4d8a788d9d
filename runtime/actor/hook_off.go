//go:build !verbena_model

package actor

// yield is where the model test (hook_model.go) switches to another goroutine.
func yield(string) {}

// hires is where the model test starts a worker.
func hires(func()) bool { return false }

// mutant takes out a defence in the model test; constant here, so it costs nothing.
const mutant = mutantNone

// See hook_model.go.
const (
	mutantNone = iota
	mutantNoRescan
	mutantBlindRest
	mutantNoLastLook
)
