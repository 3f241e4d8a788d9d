package turn

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// The values of the word; see the package comment.
const (
	asleep uint32 = iota
	rung
	held
	heldWanted
)

// Work is what a turn does. All methods but Pending and Deadline are called by
// the holder only, and none may block.
type Work interface {
	// Turn posts, polls and settles once, and reports whether it did anything.
	// With arm it first arms every queue that can produce a completion and is
	// not armed; true then means that something was found after the arming.
	Turn(arm bool) bool
	// Pending tells, to anyone, whether a submission waits to be seen.
	Pending() bool
	// Outstanding tells whether posted work has not completed yet.
	Outstanding() bool
	// Errands tells whether something waits that only the loop may do:
	// callbacks, timers, control commands, channel events.
	Errands() bool
	// Run does the errands. The loop calls it holding the turn; it returns a
	// function to be called after the turn was released (user code), or nil.
	Run() (after func())
	// Deadline is when the loop must wake for a timer; zero: never. Anyone may
	// ask. That it came earlier is an errand, so that the loop hears of it.
	Deadline() time.Time
}

// Wake is why a sleeping loop woke.
type Wake uint8

// The reasons, as bits. None of them: the bell.
const (
	WakeEvent  Wake = 1 << 0 // a channel has events
	WakeTimer  Wake = 1 << 1 // the deadline passed
	WakeClosed Wake = 1 << 2 // the sleeper was closed
)

// Sleeper is what the loop sleeps on.
type Sleeper interface {
	// Ring wakes the loop; any goroutine; never blocks.
	Ring()
	// Wait sleeps until rung, an event or the deadline.
	Wait(deadline time.Time) Wake
}

// Parker is a goroutine that waits for its result; *futures.Waiter is one.
type Parker interface {
	// Settled tells whether there is nothing to wait for any more.
	Settled() bool
	// Park sleeps until the result (Settled), the turn (Turn) or ctx.
	Park(ctx context.Context) Signal
	// Offer gives the parked goroutine the turn; false: it is not parked.
	Offer() bool
	// TakeOffer consumes an accepted offer that Park did not report.
	TakeOffer() bool
}

// Signal is what ended a Park.
type Signal uint8

// The signals.
const (
	SignalSettled Signal = iota
	SignalTurn
	SignalCancelled
)

// Config says how a token behaves.
type Config struct {
	// CallerDriving lets goroutines that wait run turns themselves.
	CallerDriving bool
	// Spin is how many empty turns the loop or a driver makes before it
	// arms and sleeps or parks.
	Spin int
}

// Token is the turn of one reactor.
type Token struct {
	// word: written by CAS by whoever takes, releases, rings or wants the
	// turn; read by all. Taking it acquires what the last holder released.
	word atomic.Uint32
	_    [124]byte // submitters read word; keep the holder's fields off its line

	cfg   Config
	work  Work
	sleep Sleeper
	// baton carries the turn from a leaving driver to the loop. One entry: the
	// loop is the only one that wants it.
	baton chan struct{}
	seats [seatCount]seat
	stats Stats
}

// Stats count what happened; read with Token.Stats.
type Stats struct {
	Rings, Drives, Offers, Batons, Sleeps atomic.Uint64 // written by anyone (Rings) or the holder; read by anyone; publish nothing
}

// New makes a token that nobody holds. Until Loop runs, or in a stepped
// reactor, only drivers and Step hold it.
func New(w Work, s Sleeper, cfg Config) *Token {
	return &Token{cfg: cfg, work: w, sleep: s, baton: make(chan struct{}, 1)}
}

// Stats are the token's counters.
func (t *Token) Stats() *Stats { return &t.stats }

// take gets the turn if nobody holds it.
func (t *Token) take() bool {
	for {
		yield("take")
		switch s := t.word.Load(); s {
		case asleep, rung:
			yield("take.cas")
			if t.word.CompareAndSwap(s, held) {
				return true
			}
		default:
			return false
		}
	}
}

// Submitted is called by a submitter after its push. It rings the loop if
// nobody is going to look.
func (t *Token) Submitted() {
	yield("submitted")
	if t.word.Load() != asleep {
		return // a holder looks again before it leaves; or the loop is on its way
	}
	t.ring()
}

// ring wakes the loop unless somebody holds the turn or it was rung already.
func (t *Token) ring() {
	yield("ring.cas")
	if t.word.CompareAndSwap(asleep, rung) {
		t.stats.Rings.Add(1)
		t.sleep.Ring()
	}
}

// Quiet is Submitted for a submitter that goes on to Drive at once: then the
// bell is not needed. Without caller driving it rings.
func (t *Token) Quiet() {
	if !t.cfg.CallerDriving {
		t.Submitted()
	}
}

// release gives the turn up. The caller has armed and polled empty. False: it
// still holds, because something was submitted meanwhile.
func (t *Token) release() bool {
	for {
		yield("release.cas")
		if t.word.CompareAndSwap(held, asleep) {
			break
		}
		if t.handWanted() {
			return true
		}
	}
	yield("release.pending")
	if mutant != mutantNoRecheck && t.work.Pending() {
		yield("release.retake")
		if t.word.CompareAndSwap(asleep, held) {
			return false
		}
	}
	return true
}

// pass gives the turn to the loop, which sees to what is left: directly if it
// waits for the turn, else by the bell.
func (t *Token) pass() {
	for {
		if t.handWanted() {
			return
		}
		yield("pass.cas")
		if t.word.CompareAndSwap(held, rung) {
			t.stats.Rings.Add(1)
			t.sleep.Ring()
			return
		}
	}
}

// handWanted gives the turn to the loop if it waits for it.
func (t *Token) handWanted() bool {
	yield("wanted.cas")
	if !t.word.CompareAndSwap(heldWanted, held) {
		return false
	}
	t.stats.Batons.Add(1)
	t.baton <- struct{}{} // the loop holds from here on
	return true
}

// Loop is the reactor's own goroutine. It returns when the sleeper is closed.
func (t *Token) Loop() {
	wake := WakeEvent // look once before the first sleep
	for wake&WakeClosed == 0 {
		if !t.take() && !t.want(wake) {
			// A driver holds, and sees to what the bell was rung for.
			wake = t.sleep.Wait(t.work.Deadline())
			continue
		}
		if after := t.loopTurns(); after != nil {
			after() // user code, without the turn
			wake = WakeEvent
			continue
		}
		t.stats.Sleeps.Add(1)
		wake = t.sleep.Wait(t.work.Deadline())
	}
}

// want waits for the turn while a driver holds it. It returns false, without
// the turn, when the driver can do all that the loop was woken for.
func (t *Token) want(wake Wake) bool {
	if wake == 0 {
		return false
	}
	for {
		yield("want.cas")
		if t.word.CompareAndSwap(held, heldWanted) {
			block("want.baton", func() bool { return len(t.baton) > 0 })
			<-t.baton
			return true
		}
		if t.take() {
			return true
		}
	}
}

// loopTurns runs turns until nothing is left to do, and releases; or returns
// user code to run first, with the turn given up as if the bell had been rung:
// the loop will be back.
func (t *Token) loopTurns() (after func()) {
	for idle := 0; ; {
		if t.work.Errands() {
			if after := t.work.Run(); after != nil {
				yield("loop.after")
				t.word.Store(rung) // the loop holds, so nobody else wants the turn
				return after
			}
			continue
		}
		if t.work.Turn(false) {
			idle = 0
			continue
		}
		if idle < t.cfg.Spin && t.work.Outstanding() {
			idle++
			runtime.Gosched()
			continue
		}
		if mutant != mutantNoArm && t.work.Turn(true) {
			continue
		}
		if t.work.Errands() {
			continue
		}
		if t.release() {
			return nil
		}
	}
}

// Step runs one turn if nobody holds it; for stepped reactors, which have no
// loop. It reports whether anything was done, and gives user code to the
// caller, without the turn.
func (t *Token) Step() bool {
	if !t.take() {
		return false
	}
	did := t.work.Turn(false)
	var after func()
	if t.work.Errands() {
		did = true
		after = t.work.Run()
	}
	t.word.Store(asleep) // no loop: nobody wants it, and the next Step looks again
	if after != nil {
		after()
	}
	return did
}

// WithTurn runs fn holding the turn, as soon as nobody else does; it yields
// while it waits. For control work of goroutines that are not the loop.
func (t *Token) WithTurn(fn func()) {
	for !t.take() {
		runtime.Gosched()
	}
	fn()
	t.leave()
}
