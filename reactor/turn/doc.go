// Package turn decides which goroutine runs a reactor: the turn is the exclusive right to do so.
// The package implements caller driving, handing the turn over, arming and sleeping. It does not
// depend on RDMA, because a pass is a method of [Work].
//
// A pass is one round of progress: post, poll and settle. The holder is the goroutine that has the
// turn. The loop is the reactor's own goroutine. A driver is a goroutine that waits for its own
// result, holds the turn meanwhile, and runs passes.
//
// # The token
//
// One atomic word of [Token] records whether a goroutine holds the turn. Only the holder posts,
// polls and settles. A wake-up is a call of [Sleeper].Wake, which wakes the loop.
//
//	              wake-up (a submitter)
//	     asleep ─────────────────────────> woken                spinning
//	      ^  │                             │  ^                  ^   │
//	      │  │                             │  │ releaseToLoop,   │   │
//	release  │take                     take│  │ or the loop      │   │take
//	      │  │                             │  │ runs user code   │   │
//	      │  v                             v  │                  │   v
//	     held ════════════════════════════════╧               held + loopSpins (a caller)
//	      ^  │                                                held + briefHold (the loop)
//	      │  │the loop, or a caller
//	handOver │in WithTurn, wants it
//	      │  v
//	     held + loopWants or callerWants
//
// The states are:
//
//   - asleep: there is no holder. The last holder armed every queue that can produce a completion,
//     polled it empty after the arming, and saw no submission after the release. The loop sleeps in
//     [Sleeper].Wait, or is about to.
//   - woken: there is no holder. The loop was woken, or is about to be, or it runs user code. It
//     takes the turn next, unless a caller takes it first.
//   - spinning: there is no holder, and the loop spins: it takes the turn again and again, each
//     time for one pass (spin.go). A caller that takes the turn from this state sets loopSpins. The
//     loop clears loopSpins when it stops spinning. If the bit is still set when the caller leaves,
//     the caller restores the state spinning and arms nothing.
//   - held: one goroutine holds the turn, the loop or a caller. With loopSpins, a caller holds the
//     turn while the loop spins. With briefHold, the spinning loop holds it, for one pass.
//   - held + loopWants: the loop waits for the turn, to handle events or timers. The holder hands
//     the turn over after its pass.
//   - held + callerWants: a goroutine in WithTurn waits for the turn. The holder hands the turn
//     over after its pass, but to the loop first if loopWants is set too.
//
// The holder may also give the turn directly to a parked waiter, through one of the token's waiter
// slots ([Parker.Offer], waiter_slot.go). This does not change the word.
//
// # How a driver leaves
//
// A driver leaves when its wait is over, when several passes found nothing, when another goroutine
// wants the turn, or when there are loop tasks: work that only the loop may do. The turn goes to
// the first of these that applies:
//
//   - the goroutine that wants it;
//   - the loop, if it spins;
//   - the loop, by a wake-up, if there are loop tasks;
//   - a parked waiter, if work is outstanding or submitted, and unless the driver leaves because
//     its passes found nothing.
//
// Otherwise the driver arms, polls again and releases the turn.
//
// # Why no wake-up is lost
//
// A submitter pushes, then reads the word; a leaving holder writes the word, then reads the
// submissions. Go's atomics are sequentially consistent, so at least one of the two reads what the
// other wrote. Either the submitter finds the word asleep and wakes the loop, or the holder finds
// the submission and takes the turn again.
//
// The poll after the arming finds every completion that came before. A later completion raises an
// event, because its queue is armed. The event wakes the loop, which takes the turn or asks the
// holder for it. To ask is to set a bit of the word itself, so no holder gives the turn up without
// seeing the request.
//
// # Guarantees
//
//   - There is one holder at a time.
//   - If a submission or completion waits while the turn has no holder, the loop or a submitter
//     that is about to drive takes the turn next.
//   - A submitter never waits. The loop waits for at most one pass of the holder, however many
//     drivers there are. WithTurn waits for one pass and for the earlier callers of WithTurn.
//   - Loop tasks wait for at most checkEvery passes of a driver.
//   - If the scheduler preempts a goroutine, others are delayed by that time, with no other effect.
//     A preempted driver delays completions. A submitter preempted between writing the word and
//     waking the loop delays later submissions. A leaving holder preempted at a waiter slot delays
//     the waiter of this slot.
//
// There are two limits. Waiter slots are searched in order, so a waiter in a low slot drives more
// often. A caller that parks while all slots are taken is not offered the turn.
//
// The tests built with -tags verbena_model search all interleavings of these steps. They run this
// code, not a copy of it (package internal/model).
package turn
