package reactor

// The holder of the turn calls user code: sinks, and the functions given to Defer, Do, After,
// Watch and Notify. The holder is the loop, or a driver (a waiting goroutine that runs passes).
// User code may panic, or end the holder's goroutine by runtime.Goexit. The reactor must still
// call the other user functions and give the turn up. In the diagram, fn is a function of the
// reactor that calls all waiting user functions in order:
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
//	 the first goroutine ends. If it was the loop's, runLoop starts another one. If it was a
//	 driver's, package futures discards the future that the driver awaited
//
// When fn is called again, it continues after the user function that did not return.
//
// Goexit also ends all functions that have called fn, directly or indirectly. A pass loses nothing
// by that, because a pass calls user code last. But user code may call Release, Flush or Drain,
// which call sinks, and a Goexit in such a sink must not end the user code that called the method.
// So if user code already runs, runUserCode calls fn on a new goroutine and waits for the end of
// that goroutine. Goexit then ends only the new goroutine.
//
// Only the holder of the turn calls the functions of this file. There are two exceptions: withTurn
// takes the turn, and any goroutine may call onOwnGoroutine.

// runUserCode calls fn, which calls user functions one after the other. If a user function does
// not return, runUserCode calls fn again, and fn continues with the next user function.
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

// runOnce calls fn. It returns true if fn returned, and false if fn panicked. If fn ends the
// goroutine, runOnce calls fn again on another goroutine, until fn returns. Then runOnce gives the
// turn up, unless within is set. The argument within reports whether user code called runUserCode,
// directly or indirectly; that user code still needs the turn.
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

// recoverPanic calls fn, recovers a panic, and reports whether fn returned. It is separate from
// runOnce, because fn may panic in a deferred function during Goexit. The recover ends the panic,
// but Goexit continues: it runs only the deferred functions of the callers of recoverPanic. So the
// deferred function that handles Goexit is in a caller, runOnce.
func (r *Reactor) recoverPanic(fn func()) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			r.failedBy(Recovered(v, r.cfg.OnPanic))
		}
	}()
	fn()
	return true
}

// failedBy fails the queue whose sink panicked, with e as the cause. It sets inPass, so that
// breakWith does not call the queue's OnFail function at once. That function is called when
// runUserCode calls fn again.
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

// withTurn runs fn while holding the turn, as Token.WithTurn does. fn may call user code.
func (r *Reactor) withTurn(fn func()) {
	r.tok.WithTurn(func() {
		r.inUserCode = true
		defer func() { r.inUserCode = false }()
		fn()
	})
}

// onOwnGoroutine calls fn on a new goroutine and waits until that goroutine has ended.
func onOwnGoroutine(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}
