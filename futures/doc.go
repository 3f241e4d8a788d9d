// Package futures provides promises and futures. Their memory is reused, and a goroutine that waits
// for a future can do the work that settles it (see Driving).
//
// The package does not depend on RDMA.
//
// # The two ends
//
// An operation has two ends: a Promise, which settles the operation once, and a Future, from which
// its result is taken once. Both are small values.
//
//	pool := futures.NewPool(futures.Options[int]{})
//	p, f := pool.New(nil)
//	go func() { p.Settle(42, nil) }()
//	v, err := f.Await(ctx)
//
// A Pool reuses the memory of operations; New without a pool allocates. A handle (a Promise or a
// Future) carries the generation of the memory that it was made for. A Future that is used after
// its result was taken gets ErrConsumed, and a late Settle returns false, even if another operation
// uses that memory by then.
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
// The last column shows allocations in the steady state. A cell (the memory of one operation)
// allocates one channel when a goroutine first parks in it, and the garbage collector may empty a
// Pool.
//
// Every function may be called from any goroutine, except that a Group has one owner at a time. If
// several goroutines take one result, one of them gets it and the others get a misuse error:
// ErrConsumed, ErrAwaited, ErrDiscarded or ErrInvalid. errors.As with *MisuseError distinguishes
// misuse errors from an operation's own errors.
//
// # Results that are not taken
//
// If results own something (a buffer, say), discard a future that is no longer wanted instead of
// dropping it: the pool's Dispose then gets the result when it comes. The end of the context in
// Await does not discard the future. Any discards the futures that did not settle first.
//
// # Where callbacks run
//
// Settle runs no code of the user except Options.Dispose, and either Options.Execute or, without
// it, the callbacks of Then and Map. With an Execute all callbacks go through it, also those of
// futures that Map, All and Any derive: so a goroutine that settles while it holds a lock does not
// run a callback that takes that lock. A panic in Execute, in Dispose or in a callback that runs
// without Execute is a panic of the goroutine that settles. If the function given to Map does not
// return, Map's future stays unsettled.
//
// # Driving
//
// An operation may have a Driver, which belongs to the operation's owner. A goroutine that would
// park in Await or Group.Wait calls Drive instead. Drive does the owner's work on that goroutine
// until the wait is over. A driver shares one turn among several waiters: waiters without the turn
// Park, and the holder, when its own wait is over, Offers the turn to one of them.
//
//	func (o *owner) Drive(done <-chan struct{}, w *futures.Waiter) error {
//		for !w.Settled() {
//			if !o.takeTurn() {
//				if !w.Announce() { // from here on an offer reaches w
//					break
//				}
//				o.enlist(w) // passTurn offers the turn to enlisted waiters
//				if !o.takeTurn() || !w.Retract() { // the turn may be free by now
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
// four steps matters: Announce comes before enlist, so a refused offer means that the waiter is
// gone; the second takeTurn comes after enlist and before Park, so it finds a turn that was
// released before the waiter was enlisted. A goroutine that releases the turn must look at the list
// again after the release.
//
// Drive gets the context's channel and not the context, because the context's methods may be user
// code. That could panic, end the goroutine or wait for the turn that the driver holds.
//
// If an Offer is accepted, the waiter's Park returns SignalTurn, even if the wait is settled or
// canceled at the same time. If Park returns another signal, the waiter has no turn to hand on.
//
// # How it works
//
// One atomic word holds a cell's generation and its flags; cell.go draws the states of the word and
// lists which goroutine may touch which field. The comment of Waiter draws parking, that of Group
// the batch wait. Settling without a waiter takes two compare-and-swaps, consuming takes one. A
// goroutine waits for a step of another one in three cases only: two goroutines attach to one
// future at once; a parked goroutine receives a signal whose sender is between its CAS and its
// send; Group.Wait ends while the last settler is between its two steps.
//
// # Guarantees, and behavior today
//
// Guaranteed: one settle and one consumption per operation; no handle gets another operation's
// result; no lost settle and no lost offer; one wake-up per Group.Wait; one call of Dispose for
// each result that was given up.
//
// Subject to change: the order in which Settle wakes waiters (awaiter, done channel, group,
// callback); the use of sync.Pool; in a Group, All or Any with several drivers, that the first
// driver is used.
//
// With -tags verbena_model every access to a word is a step of internal/model. The tests use it to
// run the real code through all interleavings of small scenes.
package futures
