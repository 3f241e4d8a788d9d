// Package turn decides who runs a reactor: its turn token, caller driving,
// hand-over, arming and sleeping. It knows nothing of RDMA; what a turn does is
// the [Work] it is given.
//
// # The token
//
// One atomic word says who may touch the queues. Whoever holds it posts, polls
// and settles; nobody else does.
//
//		                     bell (a submitter)
//		        ┌───────── asleep ──────────────> rung
//		        │            ^  │                  │
//		        │     release│  │take        take  │
//		        │            │  v                  v
//		        │            held <────────────────┘
//		        │            │  ^
//		        │  loop wants│  │given to the loop (baton)
//		        │            v  │
//		        └──────── held+wanted
//
//	  - asleep: nobody holds. Every queue that can produce a completion is armed
//	    and was polled empty after the arming, and no submission was pending
//	    after the release. The loop sleeps on its poller, or is about to.
//	  - rung: as asleep, and the bell was written: the loop is on its way.
//	  - held: one goroutine holds, the loop or a driver.
//	  - held+wanted: a driver holds and the loop waits for the turn, because there
//	    are events, timers or callbacks that it must see to. The driver gives the
//	    turn to it when it leaves.
//
// A waiter may be given a held turn directly ([Parker.Offer]): the word does not
// change then.
//
// # Why no wake-up is lost
//
// A submitter pushes, then reads the word; a holder that leaves writes the word,
// then reads the queue. Go's atomics are sequentially consistent, so at least one
// of them sees the other: either the submitter finds the word asleep and rings,
// or the leaver finds the submission and takes the turn again. A completion is
// either found by the poll after the arming or raises an event; the event
// wakes the loop, which takes the turn, or asks its holder for it.
//
// # Guarantees
//
//   - One holder at a time.
//   - Nothing pending or completed stays unseen while nobody holds, unless the
//     loop is on its way.
//   - A submitter never waits; a driver that the scheduler takes away delays
//     the completions of others by what the scheduler takes, and nothing else.
//
// The interleavings of these steps are searched exhaustively by the tests built
// with -tags verbena_model, on this code and not on a copy of it.
package turn
