package reactor

// User code that runs holding the turn (sinks, functions of Defer, Do, After, Watch and
// Tell) runs on whatever goroutine holds: the loop's, or one that waits and drives. It may
// panic or end that goroutine (runtime.Goexit). Neither may keep the turn, or results from
// others:
//
//	           fn panics: told or raised (complete_panic.go), and fn goes on behind it
//	             ┌──────┐
//	             v      │        returns
//	attend ──> fn runs ─┴──────────────────────────────> the caller goes on
//	             │
//	             │ Goexit, which nothing stops
//	             v
//	 beside: fn goes on behind it; then the turn is given up
//	             │
//	             v
//	 the goroutine ends. A driver's is not replaced (futures discards what it
//	 awaited); in place of the loop's, runLoop starts another
//
// Goexit abandons every caller of fn halfway. A turn loses nothing: user code is the last
// thing it runs. But Release, Flush and Drain, called by an errand, a task or a notice, may
// call a sink before they have finished. So user code that is called from within other user
// code runs on a goroutine of its own, and the caller waits for it: Goexit ends only that
// goroutine.
//
// All of this file is the holder's.

// attend calls fn, which calls user code one after the other and may be called again if
// one of them does not return: it then goes on with the next.
func (r *Reactor) attend(fn func()) {
	outer := r.sinkOwner
	r.sinkOwner = nil
	if r.inUserCode {
		onOwnGoroutine(func() {
			for !r.attempt(fn, true) {
			}
		})
	} else {
		r.inUserCode = true
		for !r.attempt(fn, false) {
		}
		r.inUserCode = false
	}
	r.sinkOwner = outer
}

// attempt calls fn and reports whether it returned. If its goroutine ends, the rest is
// done when it does: all of fn, and unless it is within another, the turn is given up.
func (r *Reactor) attempt(fn func(), within bool) bool {
	ended := true
	defer func() {
		if ended {
			onOwnGoroutine(func() {
				for !r.attempt(fn, within) {
				}
				if !within {
					r.inUserCode = false
					r.tok.Leave()
				}
			})
		}
	}()
	returned := r.catch(fn)
	ended = false
	return returned
}

// catch calls fn and reports whether it returned. It is not a part of attempt: when a
// deferred function panics during Goexit and the panic is recovered, Goexit resumes and
// runs only the deferred functions further up the stack.
func (r *Reactor) catch(fn func()) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			r.failedBy(Recovered(v, r.cfg.OnPanic))
		}
	}()
	fn()
	return true
}

// failedBy fails the queue whose sink has panicked; its owner is told when fn goes on.
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

// withTurn is the token's WithTurn for fn, which may call user code.
func (r *Reactor) withTurn(fn func()) {
	r.tok.WithTurn(func() {
		r.inUserCode = true
		defer func() { r.inUserCode = false }()
		fn()
	})
}

// onOwnGoroutine calls fn on a goroutine of its own and waits until it has returned, or ended that
// goroutine.
func onOwnGoroutine(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}
