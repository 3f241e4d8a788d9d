package turn

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The values of the token's word, which the package comment describes. The first four are states.
// The others are bits that can be set in the state held.
const (
	asleep   uint32 = 0
	woken    uint32 = 1
	spinning uint32 = 2
	held     uint32 = 4

	loopWants   uint32 = 8  // the loop waits on loopHandoff
	callerWants uint32 = 16 // a goroutine in WithTurn waits on callerHandoff
	loopSpins   uint32 = 32 // a caller holds the turn while the loop spins
	briefHold   uint32 = 64 // the spinning loop holds the turn, for one pass

	anyWants = loopWants | callerWants
)

// Config configures a token. The zero value is valid; callers then do not drive.
type Config struct {
	// CallerDriving lets waiting goroutines run passes themselves.
	CallerDriving bool
	// SpinMode selects when spinning ends; the zero value is SpinPasses.
	SpinMode SpinMode
	// Spin is used with SpinPasses: the loop spins for about Spin empty passes before it arms and
	// sleeps, and a driver runs about Spin empty passes in a row before it arms and parks.
	Spin int
	// Budget is the spin budget, which SpinTimed requires. After New the budget belongs to the token;
	// other code may call only Budget.Time.
	Budget *Budget
	// SavedEvents returns how many polls so far have found completions that would have raised an
	// event if the loop had slept. While this number grows, the loop goes on spinning, because each
	// such poll saves a wake-up. SavedEvents may be nil. Only the loop calls it; it must not block.
	SavedEvents func() uint64
	// Pinned says that the goroutine of Loop is locked to its thread. A yield of such a goroutine is
	// expensive, because Go must switch threads. So the loop yields rarely.
	Pinned bool
}

// Token is the turn of one reactor.
type Token struct {
	// word is the token's word: the state and its bits. Goroutines that take, release or ask for the
	// turn, or wake the loop, write it by CAS. Any goroutine reads it. It publishes the writes of each
	// holder to the next holder.
	word atomic.Uint32
	_    [124]byte // keeps the holder's fields off the cache line that submitters read

	cfg   Config
	work  Work
	sleep Sleeper
	// A send on loopHandoff gives the turn to the loop. A send on callerHandoff gives the turn to a
	// goroutine in WithTurn. The sender first clears the bit loopWants or callerWants. After the
	// send, the sender no longer holds the turn. Each channel has a buffer for one element, which is
	// enough, because only one goroutine at a time receives from it.
	loopHandoff, callerHandoff chan struct{}
	callers                    sync.Mutex // locked by the goroutine that receives from callerHandoff
	slots                      []waiterSlot
	contention                 contention
	stats                      Stats
}

// Stats has the token's counters (Token.Stats). Holders, the loop and goroutines that wake the loop
// write the counters. Any goroutine reads them. They publish no other data.
type Stats struct {
	Wakeups        atomic.Uint64 // a goroutine woke the loop by Sleeper.Wake
	Drives         atomic.Uint64 // a waiting goroutine began to drive
	Offers         atomic.Uint64 // a leaving holder gave the turn to a parked waiter
	LoopHandoffs   atomic.Uint64 // a holder gave the turn to the loop, which wanted it
	CallerHandoffs atomic.Uint64 // a holder gave the turn to a goroutine in WithTurn
	Sleeps         atomic.Uint64 // the loop went to sleep
	Spins          atomic.Uint64 // the loop began to spin
	SpinsInVain    atomic.Uint64 // the loop spun and found nothing within its budget
	Returned       atomic.Uint64 // a caller returned the turn to the spinning loop, without arming
}

// New returns a token whose turn has no holder. Before Loop is called, only drivers, WithTurn and Step
// can hold the turn. A stepped reactor never calls Loop. New never blocks.
func New(w Work, s Sleeper, cfg Config) *Token {
	return &Token{cfg: cfg, work: w, sleep: s, loopHandoff: make(chan struct{}, 1), callerHandoff: make(chan struct{}, 1),
		slots: make([]waiterSlot, slotCount)}
}

// Stats returns the token's counters. Any goroutine may call it and read them.
func (t *Token) Stats() *Stats { return &t.stats }

// take() takes the turn if the turn has no holder, and reports whether it did.
func (t *Token) take() bool {
	model.Yield("take")
	for {
		s := t.word.Load()
		if s >= held {
			return false
		}
		if t.word.CompareAndSwap(s, taken(s)) {
			return true
		}
	}
}

// taken(s) returns the new value of the word when a caller takes the turn and the old value is s.
func taken(s uint32) uint32 {
	if s == spinning {
		return held | loopSpins
	}
	return held
}

// Submitted wakes the loop if the loop sleeps and the turn has no holder. A submitter calls Submitted
// after its push. Submitted does not block. Any goroutine may call it, the holder too.
func (t *Token) Submitted() {
	model.Yield("submitted")
	// A holder looks for submissions before it leaves, and a loop that is woken or spins takes the
	// turn. So only the state asleep needs a wake-up. A load is cheaper than a CAS that fails.
	if t.word.Load() == asleep && t.word.CompareAndSwap(asleep, woken) {
		t.wakeLoop()
	}
}

// SubmittedBeforeDrive is Submitted for a submitter that calls Drive next. With CallerDriving it does
// not wake the loop. If the turn has no holder, Drive takes the turn and runs a pass. If the turn has
// a holder, the holder looks for submissions before it leaves. SubmittedBeforeDrive does not block.
func (t *Token) SubmittedBeforeDrive() {
	if !t.cfg.CallerDriving {
		t.Submitted()
	}
}

// Arrived is Submitted for an event that any pass handles, a driver's or the loop's. If the loop sleeps and
// the turn has no holder, Arrived gives the turn to a parked waiter. If no waiter accepts, Arrived wakes
// the loop. The waiter is probably the goroutine that waits for the event: it then runs without a stop at
// the loop. The source of the event calls Arrived after it has published the event, and Work.Pending
// must report the event. Arrived does not block. Any goroutine may call it, the holder too.
func (t *Token) Arrived() {
	model.Yield("arrived")
	if t.word.Load() != asleep || !t.word.CompareAndSwap(asleep, held) {
		return
	}
	if !t.offer() {
		t.releaseToLoop()
	}
}

// wakeLoop wakes the loop. The caller has just set the word to woken.
func (t *Token) wakeLoop() {
	model.Yield("bell")
	t.stats.Wakeups.Add(1)
	t.sleep.Wake()
}

// giveUp gives up the turn in one of three ways:
//
//   - If a goroutine wants the turn, giveUp hands the turn over and returns false.
//   - If no goroutine wants the turn and loopSpins is set, the new state is spinning, and giveUp
//     returns true.
//   - Otherwise the argument is the new state, and giveUp returns true.
func (t *Token) giveUp(to uint32) bool {
	model.Yield("drop")
	for {
		if t.word.CompareAndSwap(held, to) {
			return true
		}
		switch s := t.word.Load(); {
		case s < held:
			panic("turn: given up by a goroutine that does not hold it")
		case s&anyWants != 0:
			if t.handOver() {
				return false
			}
		case s&loopSpins != 0:
			if t.word.CompareAndSwap(s, spinning) {
				return true
			}
		case s&briefHold != 0:
			if t.word.CompareAndSwap(s, to) {
				return true
			}
		}
	}
}

// wanted() reports whether the loop or a goroutine in WithTurn waits for the turn. Only the holder
// calls wanted().
func (t *Token) wanted() bool {
	return t.word.Load()&anyWants != 0
}

// handOver gives the turn to a goroutine that wants it. It returns false if no goroutine wants the
// turn. If both the loop and a goroutine in WithTurn want the turn, the loop gets it first, because a
// goroutine in WithTurn would not do the loop's tasks. After its next pass the loop hands the turn to
// the goroutine in WithTurn.
func (t *Token) handOver() bool {
	for {
		switch s := t.word.Load(); {
		case s&loopWants != 0:
			if t.word.CompareAndSwap(s, s&^loopWants) {
				t.stats.LoopHandoffs.Add(1)
				t.loopHandoff <- struct{}{}
				return true
			}
		case s&callerWants != 0:
			to := s &^ (callerWants | briefHold)
			if s&briefHold != 0 {
				to |= loopSpins // the holder is the loop, which goes on spinning
			}
			if t.word.CompareAndSwap(s, to) {
				t.stats.CallerHandoffs.Add(1)
				t.callerHandoff <- struct{}{}
				return true
			}
		default:
			return false
		}
	}
}

// waitFor takes the turn if the turn has no holder. Otherwise it sets one bit in the word, loopWants
// or callerWants, and parks until the holder sends on gate. With loopWants it also clears loopSpins,
// because a loop that waits no longer spins.
func (t *Token) waitFor(want uint32, gate chan struct{}) {
	model.Yield("want")
	for {
		s := t.word.Load()
		to := taken(s)
		if s >= held {
			to = s | want
		}
		if want == loopWants {
			to &^= loopSpins
		}
		switch {
		case !t.word.CompareAndSwap(s, to):
		case s < held:
			return
		default:
			model.Block("gate", func() bool { return len(gate) > 0 })
			<-gate
			return
		}
	}
}

// release() gives up the turn, or hands it over if a goroutine wants it. The caller has armed the
// queues and polled them empty. If work has been submitted meanwhile, release() may take the turn
// again. In this case release() returns false, and the caller still holds the turn.
func (t *Token) release() bool {
	t.noteArmed()
	if !t.giveUp(asleep) {
		return true
	}
	model.Yield("release.pending")
	if !t.work.Pending() {
		return true
	}
	model.Yield("release.retake")
	if !t.word.CompareAndSwap(asleep, held) {
		return true // another goroutine took the turn, or woke the loop
	}
	model.Yield("retaken")
	return false
}

// releaseToLoop gives up the turn and leaves the remaining work to the loop. If a goroutine wants the
// turn, releaseToLoop hands it over. Otherwise it wakes the loop.
func (t *Token) releaseToLoop() {
	if t.giveUp(woken) {
		t.wakeLoop()
	}
}

// WithTurn runs fn while holding the turn; it is for control work. If the turn has a holder, WithTurn
// parks, and the holder hands the turn over after its pass. So WithTurn waits for at most one pass, for
// the loop if the loop wants the turn too, and for earlier calls of WithTurn. Any goroutine except the
// holder may call WithTurn. User code that the loop runs without the turn may call it, too. If fn
// panics or ends the goroutine, WithTurn still gives up the turn.
func (t *Token) WithTurn(fn func()) {
	if !t.take() {
		t.callers.Lock()
		t.waitFor(callerWants, t.callerHandoff)
		t.callers.Unlock()
	}
	defer t.leave(true, false)
	fn()
}
