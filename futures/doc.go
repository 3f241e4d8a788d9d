// Package futures has promises and futures whose memory is reused, and which a waiting goroutine can drive.
//
// It knows nothing of RDMA and imports the standard library only.
//
// # The two ends
//
// An operation has a Promise, which settles it once, and a Future, whose result is taken once. Both are small values.
//
//	pool := futures.NewPool(futures.Options[int]{})
//	p, f := pool.New(nil)
//	go func() { p.Settle(42, nil) }()
//	v, err := f.Await(ctx)
//
// A Pool reuses the memory of operations; New without a pool allocates. Handles carry the generation of the memory they
// were made for: a handle that is used after its result was taken gets ErrConsumed, and a late Settle returns false,
// whatever operation lives in that memory by then.
//
// # Ways to the result
//
//	Await(ctx)   blocks; consumes, unless ctx ends first           allocates nothing
//	Poll         does not block; consumes when it returns ok       nothing
//	Group.Wait   blocks for many and wakes once; then Poll each    nothing
//	Done         a channel for select; then Poll                   the channel
//	Then         consumes; a callback gets the result              with an executor: one function
//	Map          consumes; a future of what the callback returns   a cell with options, one function
//	All, Any     consume; one future for all                       that, one function per future, All: the outcomes
//	Discard      gives the result up; Dispose gets it              nothing
//
// "Nothing" is the steady state: a cell makes one channel when a goroutine parks in it for the first time, and the
// garbage collector may empty a sync.Pool, and so a Pool.
//
// Everything here may be called from any goroutine, except that a Group has one owner at a time. What is meant for one
// consumer stays safe with several: one of them gets the result, the others a misuse error (ErrConsumed, ErrAwaited,
// ErrDiscarded, ErrInvalid; errors.As with *MisuseError tells them from an operation's own errors).
//
// # Results that nobody takes
//
// A future that is not wanted any more is to be discarded, not dropped, where results own something (a buffer, say): the
// pool's Dispose then gets the result when it comes. Cancelling a wait does not discard. Any discards the losers.
//
// # Where callbacks run
//
// Settle runs no code of the user, except callbacks of Then and Map when the pool has no Execute, and Dispose. With an
// Execute all callbacks go through it, also those of futures that Map, All and Any derive, so that a goroutine which
// settles while its caller holds a lock cannot meet that lock in a callback. A panic in a callback, Execute or Dispose is
// the settler's panic. A Map whose function does not return leaves its future unsettled.
//
// # Driving
//
// An operation may have a Driver. A goroutine that would park in Await or Group.Wait is given to it instead: Drive does
// the owner's work on it till the wait is over. A driver shares one turn among several waiters: those without it Park,
// and whoever leaves with work outstanding Offers the turn to one of them.
//
//	func (o *owner) Drive(done <-chan struct{}, w *futures.Waiter) error {
//		for !w.Settled() {
//			if !o.takeTurn() {
//				if !w.Announce() { // from here on an offer reaches w
//					break
//				}
//				o.enlist(w) // where passTurn finds it
//				if !o.takeTurn() || !w.Retract() { // released between the two looks?
//					switch w.Park(done) {
//					...
//					}
//				}
//			}
//			for !w.Settled() && !closed(done) { // the turn is ours
//				o.work()
//			}
//			o.passTurn() // release it and Offer to those enlisted, until one accepts
//		}
//	}
//
// The tests have a whole one (driver_test.go, checked by TestModelTurn). The order of the four steps matters: announce, then
// enlist, so that a refused offer means a waiter that is gone; then look again, so that a turn released before the
// enlisting is found; then park. And who releases the turn looks at the list once more afterwards.
//
// Drive gets the context's channel and not the context: Err, and Done, may be user code, which could panic, end the
// goroutine or wait for the very turn that the driver holds.
//
// An Offer that was accepted is always received as SignalTurn, even when the waiter is settled or cancelled at the same
// time; a Park that returned anything else owes nobody a turn.
//
// # How it works
//
// One atomic word holds a cell's generation and its flags; cell.go draws its states and says who may touch which. Waiter
// draws parking and Group the batch wait. Settling with nobody attached is two compare-and-swaps, consuming is one. No
// operation waits for another goroutine, but for two: attaching to one future from two goroutines at once, and taking a
// signal whose sender is between his CAS and his send.
//
// # Guarantees, and behaviour today
//
// Guaranteed: one settle and one consumption per operation; no result for another operation's handle; no lost settle and
// no lost offer; one wake per Group.Wait; Dispose once for each result that was given up.
//
// Today, and subject to change: the order in which a settle wakes (awaiter, done channel, group, callback); that pools
// are sync.Pools; that of several drivers in a Group, All or Any the first one drives.
//
// With -tags verbena_model every access to a word is a step of internal/model, with which the tests run the real code
// through all interleavings of small scenes.
package futures
