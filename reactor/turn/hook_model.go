//go:build verbena_model

package turn

import "time"

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

// over asks the model's waiter, which plays its context too: a channel has no steps.
func over(done <-chan struct{}, w Parker) bool {
	if m, ok := w.(interface{ over() bool }); ok {
		return m.over()
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// outlast waits for a brief turn of the loop; false: there is none.
func (t *Token) outlast() bool {
	yield("take.brief")
	if t.word.Load()&brief == 0 {
		return false
	}
	block("take.outlast", func() bool { return t.word.Load()&brief == 0 })
	return true
}

// Pace has no clock here.
type Pace struct{}

// NewPace is for the reactor, which is built with this too.
func NewPace(time.Duration) *Pace { return new(Pace) }

// Budget is none.
func (*Pace) Budget() time.Duration { return 0 }

// spell counts rounds instead of time.
type spell struct{ rounds int }

func (s *spell) local() int { return s.rounds }

// stirs tells whether whoever spins would find something, the loop or a driver for its result; set by the model test. Who
// spins for ever waits for it: under the model waiting is never busy.
var stirs = func(driver Parker) bool { return true }

func (t *Token) breathe(s *spell) (over bool) {
	if t.cfg.Spinning == SpinAlways {
		block("watch.stirs", func() bool { return stirs(nil) })
		return false
	}
	s.rounds++
	return s.rounds > t.cfg.Spin
}

func (t *Token) look(*spell) Wake {
	if mutant == mutantWatchDeaf {
		return 0
	}
	return t.sleep.Look()
}

func (t *Token) met()  {}
func (t *Token) vain() {}

func (t *Token) slept()     {}
func (t *Token) awoke(Wake) {}

func (t *Token) tires(idle int, _ *spell) bool {
	return t.cfg.Spinning != SpinAlways && idle > t.cfg.Spin
}

func (t *Token) rest(_ int, w Parker) {
	if t.cfg.Spinning == SpinAlways {
		block("drive.stirs", func() bool { return stirs(w) })
	}
}
