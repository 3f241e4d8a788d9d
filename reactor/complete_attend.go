package reactor

// User code that runs while the turn is held (sinks, and functions given to Defer, Do, After, Watch
// and Notify) runs on the goroutine of the holder: the loop, or a driver (a waiting goroutine that
// runs passes). It may panic, or end that goroutine by runtime.Goexit. The reactor must still call
// the other user functions and give the turn up. In the diagram fn is a function of the reactor
// that calls all waiting user functions in order:
//
//	           a user function panics: reported or raised (complete_panic.go); fn is called again
//	             ┌──────┐
//	             v      │        returns
//	runOnce ─> fn runs ─┴──────────────────────────────> the caller goes on
//	             │
//	             │ a user function calls Goexit, which cannot be stopped
//	             v
//	 on another goroutine: fn is called again, then the turn is given up
//	             │
//	             v
//	 the goroutine ends. If it is the loop's, runLoop starts another one. If it is a driver's,
//	 package futures discards the future that it awaited
//
// A second call of fn goes on with the next user function.
//
// Goexit abandons every caller of fn halfway. A pass loses nothing by that, because it calls user
// code last. But Release, Flush and Drain call sinks before they have finished, and other user code
// may call these methods. So if user code runs already, fn runs on a goroutine of its own, and the
// caller waits for it: Goexit then ends only the new goroutine.
//
// Only the holder of the turn uses this file.

// runUserCode calls fn, which calls user functions one after the other. If one of them does not
// return, runUserCode calls fn again, and fn goes on with the next.
func (r *Reactor) runUserCode(fn func()) {
	outer := r.sinkOwner
	r.sinkOwner = nil
	if r.inUserCode {
		onOwnGoroutine(func() {
			for !r.runOnce(fn, true) {
			}
		})
	} else {
		r.inUserCode = true
		for !r.runOnce(fn, false) {
		}
		r.inUserCode = false
	}
	r.sinkOwner = outer
}

// runOnce calls fn and returns true if fn returned, false if it panicked. If fn ends the goroutine,
// runOnce calls fn again on another goroutine, until fn returns. Then it gives the turn up, unless
// within is set, which means that fn was called from other user code.
func (r *Reactor) runOnce(fn func(), within bool) bool {
	ended := true
	defer func() {
		if ended {
			onOwnGoroutine(func() {
				for !r.runOnce(fn, within) {
				}
				if !within {
					r.inUserCode = false
					r.tok.Leave()
				}
			})
		}
	}()
	returned := r.recoverPanic(fn)
	ended = false
	return returned
}

// recoverPanic calls fn, recovers a panic, and reports whether fn returned. runOnce cannot recover
// itself: if fn panics in a deferred function during Goexit, Goexit goes on after the recover, and
// runs only the deferred functions of the callers.
func (r *Reactor) recoverPanic(fn func()) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			r.failedBy(Recovered(v, r.cfg.OnPanic))
		}
	}()
	fn()
	return true
}

// failedBy fails the queue whose sink panicked. Setting inPass keeps breakWith from calling the
// owner at once; runUserCode calls the owner when it calls fn again.
func (r *Reactor) failedBy(e *PanicError) {
	q := r.sinkOwner
	r.sinkOwner = nil
	if q == nil || q.released {
		return
	}
	outer := r.inPass
	r.inPass = true
	q.breakWith(e)
	r.inPass = outer
}

// withTurn is Token.WithTurn for a function fn that may call user code.
func (r *Reactor) withTurn(fn func()) {
	r.tok.WithTurn(func() {
		r.inUserCode = true
		defer func() { r.inUserCode = false }()
		fn()
	})
}

// onOwnGoroutine calls fn on a new goroutine and waits until fn returns or ends that goroutine.
func onOwnGoroutine(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}
