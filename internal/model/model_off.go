//go:build !verbena_model

package model

import "runtime"

// On is 1 in the model build, and 0 here: what the model wants to be small is written with it.
const On = 0

// Yield stands before a step that others may see.
func Yield(string) {}

// Step is a Yield without a label: that costs the inliner less.
func Step() {}

// Fresh is a Yield where nothing that was read before has any influence any more.
func Fresh(string) {}

// Mark says that the goroutine knows nothing but where it is and a number.
func Mark(string, int) {}

// Again says that it forgets what it has read since the last Mark, and does the same once more.
func Again() {}

// Block stands before a wait that ends when the function is true.
func Block(string, func() bool) {}

// Pause gives the processor to whoever is waited for.
func Pause(string, func() bool) { runtime.Gosched() }

// Learn tells the model what was read, which it cannot see itself.
func Learn(uint64) {}

// Loaded tells it of a word that will be changed with a CAS, and loaded again when that fails.
func Loaded(v uint64) uint64 { return v }

// Swapped tells it whether the CAS succeeded.
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
