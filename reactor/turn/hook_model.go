//go:build verbena_model

package turn

// seatCount is for how many seats there is room.
const seatCount = 2

// seatLimit is how many of them are used, 0 for one. With one a full house
// occurs, with two a second choice.
type seatLimit struct{ seatCount int }

func (l seatLimit) room() int { return max(l.seatCount, 1) }

// leaveRounds is two, so that each way out of a round is followed by each.
const leaveRounds = 2

// yield stops the calling actor before a step until the model's scheduler lets
// it go on; set by the model test, as block and mark.
//
// A step is what lies between two yields. A load followed by a CAS of the same
// word that is repeated when it fails is one step: it takes effect where the
// CAS succeeds, or where the load showed that nothing is to be done. A read is
// part of the step before it where everything that others could do in between
// could as well happen before that step.
var yield = func(label string) {}

// block stops the calling actor until ready is true.
var block = func(label string, ready func() bool) {}

// mark says that the actor knows nothing but where it is and local: what it saw
// before has no influence any more.
var mark = func(label string, local int) {}

// pause is block: under the model waiting is never busy.
func pause(label string, ready func() bool) { block(label, ready) }

// mutant takes one defence out, to show that the model finds what it defends
// against.
var mutant = noMutant

// lookAround is one, so that how long a driver drives makes no difference.
const lookAround = 1
