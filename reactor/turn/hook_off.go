//go:build !verbena_model

package turn

import "runtime"

// The model build (-tags verbena_model) stops every goroutine before each
// atomic step and breaks one defence at a time. Here the hooks are nothing.

const (
	mutant          = 0
	mutantNoRecheck = 1
	mutantNoArm     = 2
)

func yield(string) {}

func block(string, func() bool) {}

// pause gives the processor to whoever is waited for.
func pause(string, func() bool) { runtime.Gosched() }
