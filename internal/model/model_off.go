//go:build !verbena_model

package model

import "runtime"

// On is 1 in the model build, and 0 here. Code uses it to make constants small for the model.
const On = 0

// Yield marks a step that other goroutines may see.
func Yield(string) {}

// Step is a Yield without a label, which costs the inliner less.
func Step() {}

// Fresh is a Yield after which no value read before has any influence.
func Fresh(string) {}

// Mark says that the goroutine knows nothing but its position and a number.
func Mark(string, int) {}

// Again says that the goroutine forgets the values read since the last Mark, and repeats the step.
func Again() {}

// Block marks a wait that ends when the function returns true.
func Block(string, func() bool) {}

// Pause yields the processor to the goroutine that is waited for.
func Pause(string, func() bool) { runtime.Gosched() }

// Learn reports a value that was read, which the model cannot see itself.
func Learn(uint64) {}

// Loaded reports the value of a word that a CAS will change, and that is loaded again if the CAS
// fails.
func Loaded(v uint64) uint64 { return v }

// Swapped reports whether the CAS succeeded.
func Swapped(ok bool) bool { return ok }

// Receive takes a value from c; ok is false if done was closed first. A nil done never ends the
// wait.
func Receive[T ~uint8](c <-chan T, done <-chan struct{}) (v T, ok bool) {
	if done == nil {
		return <-c, true
	}
	select {
	case v = <-c:
		return v, true
	case <-done:
		return v, false
	}
}
