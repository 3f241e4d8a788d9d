//go:build race || interleave

package futures

import "sync/atomic"

// Under the race detector (or the tag interleave) every access to a shared word passes through step, so that the model
// test can run the real code through all its interleavings. Twin: model_off.go, where all this costs nothing.

// scheduler is the model test's: step lets another goroutine go first; block returns when ready; choose picks one of n;
// seen notes what the goroutine has just learnt, on which alone its further way depends; again says that it forgets what
// it has seen since the last mark, and does the same once more.
type scheduler interface {
	step()
	seen(uint64)
	mark()
	again()
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

func seen(v uint64) {
	if s := modelled.Load(); s != nil {
		(*s).seen(v)
	}
}

func seenBool(ok bool) bool {
	if ok {
		seen(1)
	} else {
		seen(0)
	}
	return ok
}

// seenLoad and seenCAS are for words that are loaded, changed with a CAS, and loaded again when it failed.
func seenLoad(v uint64) uint64 {
	if s := modelled.Load(); s != nil {
		(*s).mark()
		(*s).seen(v)
	}
	return v
}

func seenCAS(ok bool) bool {
	if s := modelled.Load(); s != nil {
		if !ok {
			(*s).again()
			return false
		}
		(*s).seen(1)
		(*s).mark()
	}
	return ok
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
			seen(0)
			return 0, false
		}
		sig = <-wake
		seen(uint64(sig))
		return sig, true
	}
	select {
	case sig = <-wake:
		return sig, true
	case <-done:
		return 0, false
	}
}
