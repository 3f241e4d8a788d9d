// Package turn decides which goroutine runs a reactor. The turn is the exclusive right to run it.
// The package implements caller driving (a goroutine that waits for a result runs the reactor), the
// handover of the turn, arming and sleeping. It does not depend on RDMA: to run a pass, it calls a
// method of [Work].
//
// A pass is one round of progress: post, poll and settle. The holder is the goroutine that has the
// turn. The loop is the reactor's own goroutine. A driver is a goroutine that holds the turn and
// runs passes while it waits for its own result. A caller is a driver or a goroutine in WithTurn.
//
// # The token
//
// One atomic word of [Token] has the state of the turn. The rest of this text calls it the word.
// Only the holder posts, polls and settles. A wake-up is a call of [Sleeper].Wake, which wakes the
// loop.
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
//     and polled each of them empty after the arming. Then it released the turn, and found no
//     submission. The loop sleeps in [Sleeper].Wait, or is about to sleep.
//   - woken: there is no holder. The loop was woken, or is about to be woken, or runs user code.
//     The loop takes the turn next, unless a caller takes the turn first.
//   - spinning: there is no holder. The loop spins: it takes the turn again and again, each time
//     for one pass (spin.go). A caller that takes the turn in this state sets the bit loopSpins.
//     When the loop stops spinning, it clears this bit. If the bit is still set when the caller
//     leaves, the caller restores the state spinning and arms nothing.
//   - held: the loop or a caller holds the turn. If loopSpins is set, a caller holds the turn while
//     the loop spins. If briefHold is set, the spinning loop holds the turn for one pass.
//   - held + loopWants: the loop waits for the turn, to handle events or timers. The holder hands
//     the turn to the loop after the present pass.
//   - held + callerWants: a goroutine in WithTurn waits for the turn. The holder hands the turn to
//     this goroutine after the present pass. If loopWants is set too, the loop gets the turn first.
//
// A waiter is a goroutine that waits for its own result and does not hold the turn. The holder may
// also give the turn directly to a parked waiter, through one of the token's waiter slots
// ([Parker.Offer], waiter_slot.go). This does not change the word.
//
// A source of events in this process may call Arrived in place of waking the loop. Arrived takes the
// turn from the state asleep and gives it to a parked waiter at once, or to the loop by a wake-up.
//
// # How a driver leaves
//
// Loop tasks are work that only the loop may do. A driver leaves when its wait is over, when
// several passes in a row found nothing, when another goroutine wants the turn, or when there are
// loop tasks. The turn then goes to the first of these:
//
//   - a goroutine that wants the turn;
//   - the loop, if the loop spins;
//   - the loop, by a wake-up, if there are loop tasks;
//   - a parked waiter, if work is outstanding or submitted. A driver whose passes found nothing
//     does not offer the turn to waiters.
//
// Otherwise the driver arms and polls again, unless all is armed and was polled since (Work.Armed), and releases the
// turn.
//
// # Why no wake-up is lost
//
// A submitter first pushes and then reads the word. A leaving holder first sets the word to asleep
// and then reads the submissions. Go's atomics are sequentially consistent, so at least one of the
// two goroutines reads what the other has written. If the submitter reads asleep, it wakes the
// loop. If the holder reads the submission, it takes the turn again.
//
// The poll after the arming finds every completion that came before the arming. A later completion
// raises an event, because its queue is armed. An event that calls Arrived counts as a submission, and so
// does one that any pass handles: Pending is true before the loop, which that event has woken, reads the word. Any
// other event wakes the loop, which takes the turn, or asks the holder for it by setting the bit
// loopWants. A holder gives the turn up by a CAS of the same word, which fails if the bit was set
// meanwhile. So no holder misses the request.
//
// # Guarantees
//
//   - At most one goroutine holds the turn.
//   - If the turn has no holder while a submission or completion waits, then the loop, or a
//     submitter that is about to drive, takes the turn next.
//   - A submitter never waits. The loop waits for at most one pass of the holder, however many
//     drivers there are. WithTurn waits for at most one pass of the holder, for the loop if the
//     loop wants the turn too, and for earlier calls of WithTurn.
//   - Loop tasks wait for at most checkEvery passes of a driver.
//   - A goroutine that the scheduler preempts delays others at most until it runs again. A
//     preempted driver delays completions. A submitter that is preempted between writing the word
//     and waking the loop delays later submissions. A leaving holder that is preempted while it
//     uses a waiter slot delays the waiter of this slot.
//
// Offers of the turn have two limits. A leaving holder searches the waiter slots in order, so a
// waiter in a low slot drives more often. A waiter that parks while all slots are taken is not
// offered the turn.
//
// The tests built with -tags verbena_model search all interleavings of these steps. They run this
// code, not a copy of it (package internal/model).
package turn
