//go:build verbena_model

package model

// On is 1 in the model build. Code uses it to make constants small for the model.
const On = 1

// Mutant is the name of the mistake under test; see package mutate.
var Mutant string

// current is the actor that runs its step; nil between steps, and outside of Explore.
var current *Actor

// Yield stops the actor before a step that other goroutines may see.
func Yield(label string) {
	if a := current; a != nil && (a.run.Atomic == nil || !a.run.Atomic(label)) {
		a.stop(stop{label, nil})
	}
}

// Step is a Yield without a label.
func Step() { Yield("") }

// Fresh is a Yield after which no value read since the last [Forget] has any influence.
func Fresh(label string) {
	if a := current; a != nil && (a.run.Atomic == nil || !a.run.Atomic(label)) {
		Mark("", 0)
		a.stop(stop{label, nil})
	}
}

// Mark says that the actor knows nothing but place, local and the argument of its last [Forget].
func Mark(place string, local int) {
	if a := current; a != nil {
		a.place, a.mark, a.knows = place, Digest{}, Digest{}
		a.mark.Add(uint64(local))
	}
}

// Forget is for a world's own code: the actor knows nothing but local from here on. local
// identifies the operation. If operations call [Fresh], Forget must be called before each.
func Forget(local int) {
	Mark("", 0)
	if a := current; a != nil {
		a.base = Digest{}
		a.base.Add(uint64(local))
	}
}

// Again says that the actor forgets the values read since the last [Mark] or [Loaded], and repeats
// the step.
func Again() {
	if a := current; a != nil {
		a.knows = Digest{}
	}
}

// Block stops the actor until ready returns true. ready reads only shared data.
func Block(label string, ready func() bool) {
	choose(label, func() int {
		if ready() {
			return 1
		}
		return 0
	})
}

// choose stops the actor until there is a way to go on, and returns the way it goes.
func choose(label string, ways func() int) int {
	a := current
	if a == nil {
		return 0
	}
	a.stop(stop{label, ways})
	return a.way
}

// Pause is Block: the model has no busy waiting.
func Pause(label string, ready func() bool) { Block(label, ready) }

// Learn records a value that the actor read.
func Learn(v uint64) {
	if a := current; a != nil {
		a.knows.Add(v)
	}
}

// Loaded records the value of a word that a CAS will change, and that is loaded again if the CAS
// fails.
func Loaded(v uint64) uint64 {
	if a := current; a != nil {
		a.keep()
	}
	Learn(v)
	return v
}

// Swapped records whether the CAS succeeded; if not, the actor forgets the values read since it
// loaded the word, and repeats the step.
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

// Failf reports a broken rule, in an actor's step or in [World.End].
func Failf(format string, args ...any) { latest.failf(format, args...) }

// CurrentActor returns the actor that runs its step.
func CurrentActor() *Actor { return current }

// Place returns the last [Mark] of the actor that runs its step.
func Place() string { return current.place }

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
