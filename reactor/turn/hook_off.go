//go:build !verbena_model

package turn

import "runtime"

// The model build (-tags verbena_model; hook_model.go) stops every goroutine
// before each atomic step and takes out one defence at a time. Here the hooks
// are nothing.

// seatCount is how many waiters can be offered the turn at a time. More than a
// few are never looked at: the first that is still parked takes it.
const seatCount = 8

// seatLimit is the model's.
type seatLimit struct{}

func (seatLimit) room() int { return seatCount }

// leaveRounds is how often a driver that is done goes on for others before it
// passes the turn to the loop.
const leaveRounds = 4

const mutant = noMutant

func yield(string) {}

func mark(string, int) {}

func block(string, func() bool) {}

// pause gives the processor to whoever is waited for.
func pause(string, func() bool) { runtime.Gosched() }

// lookAround is how many turns a driver makes between two looks at its context's
// channel and the errands: a busy turn is about a microsecond, a look some
// nanoseconds.
const lookAround = 64

// over reports whether the wait is to end.
func over(done <-chan struct{}, _ Parker) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// briefLooks is for how many looks at the word a caller waits for the spinning loop's
// turn to end: some 5 µs, in which an empty turn, and a slice of polling in a device, is
// over. Parking and being woken cost more.
const briefLooks = 8192

// outlast waits for a brief turn of the loop; false: there is none, or it is long.
func (t *Token) outlast() bool {
	for range briefLooks {
		if s := t.word.Load(); s < held {
			return true
		} else if s&brief == 0 {
			break
		}
	}
	return false
}
