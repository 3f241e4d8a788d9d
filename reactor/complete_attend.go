package reactor

// User code that runs while the turn is held (sinks, and functions given to Defer, Do, After,
// Watch and Notify) runs on the goroutine of the holder: the loop, or a driver. It may panic or
// end that goroutine (runtime.Goexit). In both cases the reactor must still give the turn up and
// deliver all other results:
//
//	           fn panics: reported or raised (complete_panic.go), and fn goes on with the next
//	             ┌──────┐
//	             v      │        returns
//	runOnce ─> fn runs ─┴──────────────────────────────> the caller goes on
//	             │
//	             │ Goexit, which cannot be stopped
//	             v
//	 on another goroutine: fn goes on with the next; then the turn is given up
//	             │
//	             v
//	 the goroutine ends. A driver's is not replaced (futures discards the future that
//	 it awaited); in place of the loop's, runLoop starts another
//
// Goexit abandons every caller of fn halfway. A pass loses nothing by that, because it calls user
// code last. But a loop task, a task or a notice may call Release, Flush or Drain, which may call
// a sink before they have finished. So user code called from within other user code runs on a
// goroutine of its own, for which the caller waits: Goexit ends only that goroutine.
//
// Only the holder uses this file.

// runUserCode calls fn, which calls user functions one after the other. If one of them does not
// return, fn is called again and goes on with the next.
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

// runOnce calls fn and reports whether it returned; false means that it panicked. If fn ends the
// goroutine, runOnce first completes fn on another goroutine and then, unless within is set (fn
// was called from other user code), gives the turn up.
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

// recoverPanic calls fn and reports whether it returned; it recovers a panic. It is a function of
// its own because of panics of deferred functions during Goexit: after the recover, Goexit goes on
// with the deferred functions of the callers, such as that of runOnce.
func (r *Reactor) recoverPanic(fn func()) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			r.failedBy(Recovered(v, r.cfg.OnPanic))
		}
	}()
	fn()
	return true
}

// failedBy fails the queue whose sink panicked. The owner is notified when runUserCode goes on.
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

// withTurn is Token.WithTurn for a function that may call user code.
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
