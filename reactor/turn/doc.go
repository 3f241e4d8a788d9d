// Package turn decides who runs a reactor: its turn token, caller driving,
// hand-over, arming and sleeping. It knows nothing of RDMA; what a turn does is
// the [Work] it is given.
//
// # The token
//
// One atomic word says who may touch the queues. Whoever holds it posts, polls
// and settles; nobody else does.
//
//		                  bell (a submitter)
//		      asleep ─────────────────────────────> rung      watched
//		       ^   │                                │  ^        ^   │take
//		release│   │take                        take│  │pass,   │   │(and the loop,
//		       │   v                                v  │or user │   │ for a brief turn)
//		      held ─────────────────────────────────────code    │   v
//		       ^ │                                            held, spun
//		  given│ │the loop, or one in WithTurn, wants it
//		       │ v
//		      held + wanted
//
//	  - asleep: nobody holds. Every queue that can produce a completion is armed
//	    and was polled empty after the arming, and no submission was pending
//	    after the release. The loop sleeps on its poller, or is about to.
//	  - rung: as asleep, but the loop is on its way: the bell was written or is
//	    about to be, or the loop runs user code and comes back.
//	  - watched: as rung; the loop spins, and takes the turn again and again
//	    (spin.go). A turn taken from there is spun, and given back there: who
//	    drives arms nothing, as long as the loop spins. It says in the word when it
//	    does not any more.
//	  - held: one goroutine holds, the loop or a driver.
//	  - held + wanted: two bits, one for the loop (there are events or timers that
//	    it must see to) and one for a goroutine in WithTurn. The holder gives the
//	    turn, after the turn it is in, to the loop first.
//
// A waiter may be given a held turn directly ([Parker.Offer]): the word does not
// change then. Those that may be asked sit in the token's seats (waiter_slot.go).
//
// # Who leaves, and how
//
// A driver leaves when its wait is over, when it found nothing for a while, when
// the turn is wanted, or when there is something that only the loop may do. Then
// the turn goes, in this order: to who wants it; by the bell to the loop, for
// its errands; to a parked waiter, if work is outstanding and the driver did not
// leave because nothing came; to nobody, armed and polled once more.
//
// # Why no wake-up is lost
//
// A submitter pushes, then reads the word; a holder that leaves writes the word,
// then reads the queue. Go's atomics are sequentially consistent, so at least one
// of them sees the other: either the submitter finds the word asleep and rings,
// or the leaver finds the submission and takes the turn again. A completion is
// either found by the poll after the arming or raises an event; the event
// wakes the loop, which takes the turn, or asks its holder for it. What is wanted
// is in the word itself, so nobody can give the turn up without seeing it.
//
// # Guarantees
//
//   - One holder at a time.
//   - Nothing pending or completed stays unseen while nobody holds, unless the
//     loop is on its way.
//   - A submitter never waits. The loop, and WithTurn, wait for one turn of the
//     holder (and WithTurn for those that came before it), however many drivers
//     there are. Errands wait for at most checkEvery turns.
//   - A goroutine that the scheduler takes away can delay others by that long,
//     and nothing else: a driver in a turn delays completions, a ringer between
//     word and bell the submissions after it, a leaver at a seat the waiter there.
//
// Today: seats are asked in order, so a waiter in a low one drives more often;
// callers that find all seats taken never drive.
//
// The interleavings of these steps are searched exhaustively by the tests built
// with -tags verbena_model, on this code and not on a copy of it (package model).
package turn
