package turn

import "time"

// Work is what the holder of the turn runs. Only the holder calls the methods, except where noted,
// and none may block.
type Work interface {
	// Pass posts, polls and settles one time, and reports whether it did anything. If arm is true,
	// it first arms every queue that can produce a completion and is not armed. The result true
	// then means that the pass found something after the arming.
	Pass(arm bool) bool
	// Pending reports whether a submission waits for a pass. A loop task that another goroutine
	// than the holder can add counts as a submission. Any goroutine may call it.
	Pending() bool
	// Outstanding reports whether posted work has not completed yet.
	Outstanding() bool
	// NeedsLoop reports whether there is work that only the loop may do: callbacks, timers, control
	// commands, channel events. A spinning loop also calls it without holding the turn.
	NeedsLoop() bool
	// RunLoopTasks does the loop's tasks. The loop (or Step) calls it while holding the turn. It
	// returns user code, or nil. Its caller runs the user code after it has given up the turn.
	RunLoopTasks() (after func())
	// Deadline returns when the loop must wake for a timer; zero means never. Any goroutine may
	// call it. A sleeping loop does not call Deadline again. So an earlier deadline must be a loop
	// task, which wakes the loop.
	Deadline() time.Time
}

// WakeReason says why a sleeping loop woke.
type WakeReason uint8

// The reasons, as bits. Zero means a call of Wake.
const (
	WakeEvent  WakeReason = 1 << 0 // a channel has events
	WakeTimer  WakeReason = 1 << 1 // the deadline passed
	WakeClosed WakeReason = 1 << 2 // the sleeper was closed
)

// Sleeper is what the loop sleeps on. [PollerSleeper] implements it.
type Sleeper interface {
	// Wake wakes the loop. Any goroutine may call it; it never blocks. If the loop does not sleep,
	// the wake-up is kept for the next Wait.
	Wake()
	// Wait sleeps until Wake, an event or the deadline. If Wait reports an event or a deadline,
	// [Work.NeedsLoop] is true from then on until RunLoopTasks has handled it. Only the loop calls
	// Wait.
	Wait(deadline time.Time) WakeReason
	// Poll is Wait without sleeping and without a deadline. Only a spinning loop calls it.
	Poll() WakeReason
}

// Parker is a goroutine that waits for its result. [Waiter] makes a Parker from a *futures.Waiter.
type Parker interface {
	// Settled reports whether the wait is over. Once true it stays true.
	Settled() bool
	// Park sleeps until the result is there (SignalSettled), the goroutine is given the turn
	// (SignalTurn) or done is closed (SignalCancelled). If an offer was accepted, Park returns
	// SignalTurn whatever else has happened.
	Park(done <-chan struct{}) Signal
	// Offer gives the turn to the goroutine and returns true. It returns false if the goroutine is
	// not parked. Any goroutine may call it; it never blocks.
	Offer() bool
}

// Signal says what ended a Park.
type Signal uint8

// The signals.
const (
	SignalSettled   Signal = iota // the wait is over
	SignalTurn                    // an offer was accepted: this goroutine holds the turn
	SignalCancelled               // done was closed
)
