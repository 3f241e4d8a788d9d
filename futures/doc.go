// Package futures provides promises and futures whose memory is reused, and which a waiting
// goroutine can drive.
//
// It knows nothing of RDMA and imports the standard library only.
//
// # The two ends
//
// An operation has a Promise, which settles it once, and a Future, whose result is taken once. Both
// are small values.
//
//	pool := futures.NewPool(futures.Options[int]{})
//	p, f := pool.New(nil)
//	go func() { p.Settle(42, nil) }()
//	v, err := f.Await(ctx)
//
// A Pool reuses the memory of operations; New without a pool allocates. Handles carry the
// generation of the memory they were made for: a handle that is used after its result was taken
// gets ErrConsumed, and a late Settle returns false, whatever operation uses that memory by then.
//
// # Ways to the result
//
//	Await(ctx)   blocks; consumes, unless ctx ends first       allocates nothing
//	Poll         does not block; consumes if it returns ok     nothing
//	Group.Wait   blocks for many, wakes once; then Poll each   nothing
//	Done         a channel for select; then Poll               the channel
//	Then         consumes; a callback gets the result          with an executor: one function
//	Map          consumes; a future of the callback's result   a cell with options, one function
//	All, Any     consume; one future for all                   that, one function per future,
//	                                                           All: the outcomes
//	Discard      gives the result up; Dispose gets it          nothing
//
// "Nothing" is the steady state: a cell makes one channel when a goroutine first parks in it, and
// the garbage collector may empty a sync.Pool, and so a Pool.
//
// Every function may be called from any goroutine, except that a Group has one owner at a time.
// Calls meant for one consumer stay safe with several: one of them gets the result, the others a
// misuse error (ErrConsumed, ErrAwaited, ErrDiscarded, ErrInvalid; errors.As with *MisuseError
// distinguishes them from an operation's own errors).
//
// # Results that are not taken
//
// If results own something (a buffer, say), discard a future that is no longer wanted instead of
// dropping it: the pool's Dispose then gets the result when it comes. Canceling a wait does not
// discard. Any discards the losers.
//
// # Where callbacks run
//
// Settle runs no code of the user, except callbacks of Then and Map if the pool has no Execute, and
// Dispose. With an Execute all callbacks go through it, also those of futures that Map, All and Any
// derive, so that a goroutine that settles while its caller holds a lock does not run a callback
// that takes the lock. A panic in a callback, Execute or Dispose is a panic of the goroutine that
// settles. A Map whose function does not return leaves its future unsettled.
//
// # Driving
//
// An operation may have a Driver. A goroutine that would park in Await or Group.Wait calls Drive
// instead, which does the owner's work on it until the wait is over. A driver shares one turn among
// several waiters: those without it Park, and a waiter that leaves with work outstanding Offers the
// turn to one of them.
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
//			for !w.Settled() && !closed(done) { // this goroutine holds the turn
//				o.work()
//			}
//			o.passTurn() // release it and Offer to the enlisted waiters, until one accepts
//		}
//	}
//
// The tests have a complete driver (driver_test.go, checked by TestModelTurn). The order of the
// four steps matters: announce, then enlist, so that a refused offer means that the waiter is gone;
// then look again, so that a turn released before the enlisting is found; then park. A goroutine
// that releases the turn must look at the list once more afterwards.
//
// Drive gets the context's channel and not the context: Err and Done may be user code, which could
// panic, end the goroutine or wait for the turn that the driver holds.
//
// An accepted Offer is always received as SignalTurn, even if the waiter is settled or canceled at
// the same time; after a Park that returned anything else there is no turn to hand on.
//
// # How it works
//
// One atomic word holds a cell's generation and its flags; cell.go draws its states and says which
// goroutine may touch which field. Waiter draws parking and Group the batch wait. Settling without
// a waiter takes two compare-and-swaps, consuming takes one. An operation waits for another
// goroutine in two cases only: attaching to one future from two goroutines at once, and receiving a
// signal whose sender is between its CAS and its send.
//
// # Guarantees, and behavior today
//
// Guaranteed: one settle and one consumption per operation; no result for another operation's
// handle; no lost settle and no lost offer; one wake per Group.Wait; Dispose once for each
// result that was given up.
//
// Subject to change: the order in which a settle wakes (awaiter, done channel, group, callback);
// that pools are sync.Pools; that of several drivers in a Group, All or Any the first one drives.
//
// With -tags verbena_model every access to a word is a step of internal/model, with which the tests
// run the real code through all interleavings of small scenes.
package futures
