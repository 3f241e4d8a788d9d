package reactor

// The holder of the turn calls user code: sinks, and the functions given to Defer, Do, After,
// Watch and Notify. The holder is the loop, or a driver (a waiting goroutine that runs passes).
// User code may panic, or end the holder's goroutine by runtime.Goexit. The reactor must still
// call the other user functions and give the turn up. In the diagram, fn is a function of the
// reactor (deliverAll, for example) that calls all waiting user functions in order:
//
//	           a user function panics: the panic goes to Config.OnPanic, or ends the program
//	           (complete_panic.go). Then fn is called again
//	             ┌──────┐
//	             v      │        returns
//	runOnce ─> fn runs ─┴──────────────────────────────> runOnce returns
//	             │
//	             │ a user function calls Goexit, which cannot be stopped
//	             v
//	 on another goroutine: fn is called again, then the turn is given up
//	             │
//	             v
//	 the goroutine that called runOnce ends. If it was the loop's goroutine, runLoop starts a new
//	 one. If it was a driver, package futures discards the future that the driver awaited
//
// When fn is called again, it continues after the user function that did not return.
//
// Goexit also ends all functions that have called fn, directly or indirectly. Calling user code is
// the last step of a pass, so Goexit skips no other step. But user code may call Release, Flush or
// Drain, which call sinks. A Goexit in one of these sinks must not end the user code that called
// Release, Flush or Drain. So if user code already runs, runUserCode calls fn on a new goroutine and
// waits for the end of that goroutine. Goexit then ends only the new goroutine.
//
// Only the holder of the turn calls the functions of this file. There are two exceptions: the caller
// of withTurn must not hold the turn, and any goroutine may call onOwnGoroutine.

// runUserCode calls fn, which calls user functions one after the other. If a user function panics or
// ends the goroutine, runUserCode calls fn again, and fn continues with the next user function.
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
// goroutine, runOnce calls fn again on another goroutine, until fn returns. Then runOnce gives up
// the turn if within is false. If within is true, user code called runUserCode, directly or
// indirectly, and this user code still needs the turn.
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

// recoverPanic calls fn, recovers a panic, and reports whether fn returned. recoverPanic is separate
// from runOnce for this case: fn calls Goexit, and then a deferred function of fn panics. The recover
// ends the panic, but Goexit continues with the deferred functions of recoverPanic's callers. So the
// deferred function that handles Goexit must be in a caller of recoverPanic. It is in runOnce.
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
// breakWith only queues the call of the queue's OnFail function. The queued call runs when
// runUserCode calls fn again.
func (r *Reactor) failedBy(e *PanicError) {
	q := r.sinkOwner
	r.sinkOwner = nil
	if q == nil || q.released() {
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
