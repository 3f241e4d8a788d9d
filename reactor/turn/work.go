package turn

import "time"

// Work is what the holder of the turn runs. Only the holder calls its methods, except where noted.
// No method may block.
type Work interface {
	// Pass posts, polls and settles one time, and reports whether it did anything. If arm is true,
	// Pass arms every queue that can produce a completion and is not armed, and polls after that.
	Pass(arm bool) bool
	// Armed reports whether the holder may give the turn up after a pass without another one: every later
	// completion raises an event, or an event has been raised that is not taken. So each queue that can
	// produce a completion is armed, was polled empty after that, and had nothing more for the last pass. No work is
	// left that a pass with arm does. Only the holder calls Armed.
	Armed() bool
	// Pending reports whether a submission, or an event that any pass handles, waits for a pass.
	// Loop tasks count as submissions if other goroutines than the holder can add them. Any goroutine may call Pending.
	Pending() bool
	// Quiet reports whether the next work comes by a submission or by a call of [Token.Arrived], so that
	// spinning finds nothing earlier. Only the holder calls Quiet.
	Quiet() bool
	// Outstanding reports whether posted work has not completed yet.
	Outstanding() bool
	// NeedsLoop reports whether there are loop tasks: callbacks, timers, control commands or channel
	// events. A spinning loop calls it also without the turn.
	NeedsLoop() bool
	// RunLoopTasks runs the loop tasks. Only the loop and Step call it, holding the turn. The
	// returned function, if not nil, is user code, which the loop or Step calls after giving up the
	// turn.
	RunLoopTasks() (after func())
	// Deadline returns when the loop must wake for a timer; the zero time means never. Any goroutine
	// may call it. The loop calls Deadline before it sleeps, and not again while it sleeps. So only
	// a loop task, for which the loop is awake, may set an earlier deadline.
	Deadline() time.Time
}

// WakeReason says why a sleeping loop woke.
type WakeReason uint8

// The reasons, as bits. Zero means that only a call of Wake woke the loop, or an event that any pass handles.
const (
	WakeEvent  WakeReason = 1 << 0 // a channel has events, which only the loop handles
	WakeTimer  WakeReason = 1 << 1 // the deadline passed
	WakeClosed WakeReason = 1 << 2 // the sleeper was closed
)

// Sleeper lets the loop sleep and wakes it. [PollerSleeper] implements Sleeper.
type Sleeper interface {
	// Wake wakes the loop. Any goroutine may call it; it never blocks. If the loop does not sleep,
	// the wake-up is kept for the next Wait.
	Wake()
	// Wait sleeps until Wake is called, an event comes or the deadline passes. After WakeEvent or the
	// deadline, [Work.NeedsLoop] returns true until RunLoopTasks has handled the event or the timer. Before
	// Wait returns 0 for an event that any pass handles, [Work.Pending] must report that event. Only the loop calls Wait.
	Wait(deadline time.Time) WakeReason
	// Poll is Wait without sleeping and without a deadline. Only a spinning loop calls it.
	Poll() WakeReason
}

// Parker is a goroutine that waits for its result. [Waiter] makes a Parker from a *futures.Waiter.
type Parker interface {
	// Settled reports whether the wait is over. A finished wait stays finished.
	Settled() bool
	// Park sleeps until the wait is over (SignalSettled), the goroutine is given the turn
	// (SignalTurn) or done is closed (SignalCancelled). If Offer has given the turn, Park returns
	// SignalTurn, even if the wait is over or done is closed.
	Park(done <-chan struct{}) Signal
	// Offer gives the turn to the goroutine and returns true. If the goroutine is not parked, Offer
	// returns false. Any goroutine may call Offer; it never blocks.
	Offer() bool
}

// Signal says what ended a Park.
type Signal uint8

// The signals.
const (
	SignalSettled   Signal = iota // the wait is over
	SignalTurn                    // Offer gave the turn to this goroutine
	SignalCancelled               // done was closed
)
