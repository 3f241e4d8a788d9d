//go:build verbena_model

package model

// On is 1 in the model build: what the model wants to be small is written with it.
const On = 1

// Mutant is the mistake that is tested; see package mutate.
var Mutant string

// current is the actor whose step it is; nil between steps, and where nothing is explored.
var current *Actor

// Yield stops the actor before a step that others may see.
func Yield(label string) {
	if a := current; a != nil && (a.run.Atomic == nil || !a.run.Atomic(label)) {
		a.stop(stop{label, nil})
	}
}

// Step is a Yield without a label.
func Step() { Yield("") }

// Fresh is a Yield where nothing that was read before, since the last [Forget], has any influence
// any more.
func Fresh(label string) {
	if a := current; a != nil && (a.run.Atomic == nil || !a.run.Atomic(label)) {
		Mark("", 0)
		a.stop(stop{label, nil})
	}
}

// Mark says that the actor knows nothing but where it is and local, and what it was told by
// [Forget].
func Mark(place string, local int) {
	if a := current; a != nil {
		a.place, a.mark, a.knows = place, Digest{}, Digest{}
		a.mark.Add(uint64(local))
	}
}

// Forget is for a world's own code: the actor knows nothing but local from here on, which tells
// one operation from the other. Where operations call [Fresh] it must be called before each.
func Forget(local int) {
	Mark("", 0)
	if a := current; a != nil {
		a.base = Digest{}
		a.base.Add(uint64(local))
	}
}

// Again says that the actor forgets what it has read since the last [Mark] or [Loaded], and does
// the same once more.
func Again() {
	if a := current; a != nil {
		a.knows = Digest{}
	}
}

// Block stops the actor until ready is true, which reads only what is shared.
func Block(label string, ready func() bool) {
	choose(label, func() int {
		if ready() {
			return 1
		}
		return 0
	})
}

// choose stops the actor until there is a way to go on, and returns which of them it goes.
func choose(label string, ways func() int) int {
	a := current
	if a == nil {
		return 0
	}
	a.stop(stop{label, ways})
	return a.way
}

// Pause is Block: here waiting is never busy.
func Pause(label string, ready func() bool) { Block(label, ready) }

// Learn notes what the actor read.
func Learn(v uint64) {
	if a := current; a != nil {
		a.knows.Add(v)
	}
}

// Loaded notes a word that will be changed with a CAS, and loaded again when that fails.
func Loaded(v uint64) uint64 {
	if a := current; a != nil {
		a.keep()
	}
	Learn(v)
	return v
}

// Swapped notes whether the CAS succeeded; if not the actor forgets what it has read since it
// loaded the word, and does the same once more.
func Swapped(ok bool) bool {
	if !ok {
		Again()
	} else if a := current; a != nil {
		a.knows.Add(1)
		a.keep()
	}
	return ok
}

// Receive takes a value from c; ok is false if done was closed first, and may be so if both are
// ready.
func Receive[T ~uint8](c <-chan T, done <-chan struct{}) (v T, ok bool) {
	if current != nil {
		ended := func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		way := choose("receive", func() int { return one(len(c) > 0) + one(ended()) })
		if way == 1 || len(c) == 0 {
			Learn(0)
			return v, false
		}
		v = <-c
		Learn(uint64(v) + 1)
		return v, true
	}
	select {
	case v = <-c:
		return v, true
	case <-done:
		return v, false
	}
}

// Failf breaks a rule, in an actor's step or in [World.End].
func Failf(format string, args ...any) { latest.failf(format, args...) }

// Who is the actor whose step it is.
func Who() *Actor { return current }

// Place is the last [Mark] of the actor whose step it is.
func Place() string { return current.place }

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
