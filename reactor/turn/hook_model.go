//go:build verbena_model

package turn

// yield stops the calling actor before an atomic step until the model's
// scheduler lets it go on; set by the model test.
var yield = func(label string) {}

// block stops the calling actor until ready is true.
var block = func(label string, ready func() bool) {}

// pause is block: under the model waiting is never busy.
func pause(label string, ready func() bool) { block(label, ready) }

// mutant takes one defence out, to show that the model finds what it defends
// against.
var mutant = 0

const (
	mutantNoRecheck = 1
	mutantNoArm     = 2
)
