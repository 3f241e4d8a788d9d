//go:build race || interleave

package futures

import "sync/atomic"

// Under the race detector (or the tag interleave) every access to a shared word passes through step, so that the model
// test can run the real code through all its interleavings. Twin: model_off.go, where all this costs nothing.

// scheduler is the model test's: step lets another goroutine go first; block returns when ready; choose picks one of n.
type scheduler interface {
	step()
	block(ready func() bool)
	choose(n int) int
}

// modelled is written by the model test alone, while no other test runs; read by every step. Nil: not modelled.
var modelled atomic.Pointer[scheduler]

func step() {
	if s := modelled.Load(); s != nil {
		(*s).step()
	}
}

func pause(w *Waiter, seen uint64) {
	if s := modelled.Load(); s != nil {
		(*s).block(func() bool { return w.word.Load() != seen })
		return
	}
	yieldProcessor()
}

func receive(wake <-chan Signal, done <-chan struct{}) (sig Signal, ok bool) {
	if s := modelled.Load(); s != nil {
		ended := func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		(*s).block(func() bool { return len(wake) > 0 || ended() })
		if ended() && (len(wake) == 0 || (*s).choose(2) == 1) {
			return 0, false
		}
		return <-wake, true
	}
	select {
	case sig = <-wake:
		return sig, true
	case <-done:
		return 0, false
	}
}
