package turn

import "time"

// Work is what a turn does. All methods but Pending and Deadline are called by
// the holder only, and none may block.
type Work interface {
	// Pass posts, polls and settles once, and reports whether it did anything.
	// With arm it first arms every queue that can produce a completion and is
	// not armed; true then means that something was found after the arming.
	Pass(arm bool) bool
	// Pending tells, to anyone, whether a submission waits to be seen. An
	// errand that others than the holder can leave counts as one.
	Pending() bool
	// Outstanding tells whether posted work has not completed yet.
	Outstanding() bool
	// NeedsLoop tells whether something waits that only the loop may do:
	// callbacks, timers, control commands, channel events. A loop that spins asks
	// without holding the turn, too.
	NeedsLoop() bool
	// RunLoopTasks does the errands. The loop calls it holding the turn; it returns a
	// function to be called after the turn was released (user code), or nil.
	RunLoopTasks() (after func())
	// Deadline is when the loop must wake for a timer; zero: never. Anyone may
	// ask. That it came earlier is an errand, so that the loop hears of it: a
	// sleeping loop does not ask again. (Where the loop alone sets timers it
	// always knows.)
	Deadline() time.Time
}

// WakeReason is why a sleeping loop woke.
type WakeReason uint8

// The reasons, as bits. None of them: the bell.
const (
	WakeEvent  WakeReason = 1 << 0 // a channel has events
	WakeTimer  WakeReason = 1 << 1 // the deadline passed
	WakeClosed WakeReason = 1 << 2 // the sleeper was closed
)

// Sleeper is what the loop sleeps on. [PollerSleeper] is one.
type Sleeper interface {
	// Wake wakes the loop; any goroutine; never blocks. A ring that finds
	// nobody asleep is kept for the next Wait.
	Wake()
	// Wait sleeps until rung, an event or the deadline. An event or a deadline
	// that it reports is an errand ([Work.NeedsLoop]) before it returns and until
	// Run saw to it. Only the loop calls it.
	Wait(deadline time.Time) WakeReason
	// Poll is Wait without sleep, and without a deadline. Only a loop that spins
	// calls it.
	Poll() WakeReason
}

// Parker is a goroutine that waits for its result. [Waiter] makes one of a
// *futures.Waiter.
type Parker interface {
	// Settled tells whether there is nothing to wait for any more. It stays true.
	Settled() bool
	// Park sleeps until the result (Settled), the turn (Turn) or until done is closed. An
	// accepted offer it always reports.
	Park(done <-chan struct{}) Signal
	// Offer gives the parked goroutine the turn; false: it is not parked.
	// Any goroutine; never blocks.
	Offer() bool
}

// Signal is what ended a Park.
type Signal uint8

// The signals.
const (
	SignalSettled   Signal = iota // there is nothing to wait for any more
	SignalTurn                    // an offer was accepted: this goroutine holds the turn
	SignalCancelled               // done was closed
)
