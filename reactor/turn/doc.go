// Package turn decides which goroutine runs a reactor. It implements the turn token, caller
// driving, hand-over, arming and sleeping. It does not depend on RDMA: a pass is a method of
// [Work].
//
// # The token
//
// One atomic word records whether a goroutine holds the turn. Only the holder posts, polls and
// settles.
//
//		              wake-up (a submitter)
//		     asleep ─────────────────────────> woken                spinning
//		      ^  │                             │  ^                  ^   │
//		      │  │                             │  │ releaseToLoop,   │   │
//		release  │take                     take│  │ or the loop      │   │take
//		      │  │                             │  │ runs user code   │   │
//		      │  v                             v  │                  │   v
//		     held ════════════════════════════════╧               held + loopSpins (a caller)
//		      ^  │                                                held + briefHold (the loop)
//		      │  │the loop, or a caller
//		handOver │in WithTurn, wants it
//		      │  v
//		     held + loopWants or callerWants
//
//	  - asleep: there is no holder. Every queue that can produce a completion is armed and was polled
//	    empty after the arming, and no submission was pending after the release. The loop sleeps on
//	    its poller, or is about to.
//	  - woken: there is no holder, and the loop will take the turn: it was woken or is about to be, or
//	    it runs user code and then comes back.
//	  - spinning: there is no holder, and the loop spins: it takes the turn again and again, each time
//	    for one pass (spin.go). A caller that takes the turn from this state sets loopSpins. If
//	    loopSpins is still set when the caller leaves, it restores this state and arms nothing. The
//	    loop clears loopSpins when it stops spinning.
//	  - held: one goroutine holds the turn, the loop or a caller. loopSpins: a caller holds, and the
//	    loop spins. briefHold: the spinning loop holds, for one pass.
//	  - held + loopWants, callerWants: the loop waits for the turn, to handle events or timers, or a
//	    goroutine in WithTurn waits for it. The holder hands the turn over after its pass, to the
//	    loop first.
//
// The holder may also give the turn directly to a parked waiter in one of the token's waiter slots
// ([Parker.Offer], waiter_slot.go). This does not change the word.
//
// # How a driver leaves
//
// A driver leaves when its wait is over, when it found nothing for a while, when the turn is
// wanted, or when there are loop tasks. The turn goes to the first of these that applies: the
// goroutine that wants it; the spinning loop; the loop, by a wake-up, if it has tasks; a parked
// waiter, if work is outstanding or submitted and the driver did not leave for lack of
// completions. Otherwise the driver arms, polls once more and releases the turn.
//
// # Why no wake-up is lost
//
// A submitter pushes, then reads the word; a holder that leaves writes the word, then reads the
// submissions. Go's atomics are sequentially consistent, so at least one reads what the other
// wrote: the submitter finds the word asleep and wakes the loop, or the leaver finds the
// submission and takes the turn again. The poll after the arming finds a completion, or the
// completion raises an event, which wakes the loop; the loop takes the turn or asks the holder for
// it. A request for the turn is a bit of the word itself, so no holder can give the turn up
// without seeing the request.
//
// # Guarantees
//
//   - There is one holder at a time.
//   - No submission or completion stays unseen while the turn has no holder, unless the loop is
//     about to take it.
//   - A submitter never waits. The loop and WithTurn wait for one pass of the holder (WithTurn also
//     for the earlier callers of WithTurn), however many drivers there are. Loop tasks wait for at
//     most checkEvery passes.
//   - If the scheduler preempts a goroutine, others are delayed by that time, with no other effect: a
//     driver in a pass delays completions; a submitter between writing the word and waking the loop
//     delays later submissions; a leaver at a waiter slot delays the waiter of this slot.
//
// There are two limits. Waiter slots are searched in order, so a waiter in a low slot drives more
// often. A caller that parks while all slots are taken is not offered the turn.
//
// The tests built with -tags verbena_model search the interleavings of these steps exhaustively.
// They run this code and not a copy of it (package model).
package turn
