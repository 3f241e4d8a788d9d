// Package turn decides which goroutine runs a reactor. It implements the turn token, caller
// driving, hand-over, arming and sleeping. It knows nothing of RDMA: a pass is a method of the
// [Work] it is given.
//
// # The token
//
// One atomic word says which goroutine may touch the queues. Only the holder posts, polls and settles.
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
//	  - woken: as asleep, but the loop will take the turn: a wake-up was sent or is about to be, or
//	    the loop runs user code and comes back.
//	  - spinning: there is no holder, and the loop spins: it takes the turn again and again, for one
//	    pass each (spin.go). A caller that takes the turn from this state returns it to this state,
//	    and arms nothing, as long as loopSpins is set. The loop clears loopSpins when it stops
//	    spinning.
//	  - held: one goroutine holds the turn, the loop or a caller. loopSpins: a caller holds, and the
//	    loop spins. briefHold: the spinning loop holds, for one pass.
//	  - held + loopWants, callerWants: the loop waits for the turn (there are events or timers to
//	    handle), or a goroutine in WithTurn does. The holder hands the turn over after its pass, to
//	    the loop first.
//
// The holder may also give the turn directly to a parked waiter ([Parker.Offer]); the word does not
// change then. The waiters that can be offered the turn are in the token's waiter slots
// (waiter_slot.go).
//
// # How a driver leaves
//
// A driver leaves when its wait is over, when it found nothing for a while, when the turn is
// wanted, or when there are loop tasks. The turn goes to the first of these that applies: the
// goroutine that wants it; the loop that spins; the loop, by a wake-up, for its tasks; a parked
// waiter, if work is outstanding and the driver did not leave for lack of completions. Otherwise
// the driver arms, polls once more and releases the turn.
//
// # Why no wake-up is lost
//
// A submitter pushes, then reads the word; a holder that leaves writes the word, then reads the
// submissions. Go's atomics are sequentially consistent, so at least one sees the other: either the
// submitter finds the word asleep and wakes the loop, or the leaver finds the submission and takes
// the turn again. A completion is either found by the poll after the arming or raises an event; the
// event wakes the loop, which takes the turn or asks its holder for it. A request for the turn is a
// bit of the word itself, so no holder can give the turn up without seeing it.
//
// # Guarantees
//
//   - There is one holder at a time.
//   - No submission or completion stays unseen while the turn has no holder, unless the loop is
//     about to take it.
//   - A submitter never waits. The loop and WithTurn wait for one pass of the holder (WithTurn also
//     for the earlier callers of WithTurn), however many drivers there are. Loop tasks wait for at
//     most checkEvery passes.
//   - A goroutine that the scheduler preempts delays others by that long, with no other effect: a
//     driver in a pass delays completions; a submitter between writing the word and waking the loop
//     delays later submissions; a leaver at a waiter slot delays its waiter.
//
// Two limits: slots are searched in order, so a waiter in a low one drives more often; callers that
// find all slots taken never drive.
//
// The tests built with -tags verbena_model search the interleavings of these steps exhaustively, on
// this code and not on a copy of it (package model).
package turn
