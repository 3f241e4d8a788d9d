package turn

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The token's word: one of four states and, while held, the bits for wanting the turn and for
// spinning. See the package comment.
const (
	asleep   uint32 = 0
	woken    uint32 = 1
	spinning uint32 = 2
	held     uint32 = 4

	loopWants   uint32 = 8  // the loop waits on loopHandoff
	callerWants uint32 = 16 // a goroutine in WithTurn waits on callerHandoff
	loopSpins   uint32 = 32 // a caller holds, and the loop spins
	briefHold   uint32 = 64 // the spinning loop holds, for one pass

	anyWants = loopWants | callerWants
)

// Config configures a token. The zero value works: no caller drives.
type Config struct {
	// CallerDriving lets waiting goroutines run passes themselves.
	CallerDriving bool
	// SpinMode is what ends spinning; the zero value is SpinPasses.
	SpinMode SpinMode
	// Spin is how many empty passes in a row the loop or a driver runs before it arms and sleeps or
	// parks. SpinPasses uses it.
	Spin int
	// Budget is the budget of SpinTimed, which needs one. The token owns it from New on.
	Budget *Budget
	// SavedEvents counts the completions found by drivers that would have woken the loop if it did
	// not spin, so that the loop knows whether spinning pays. Nil counts nothing. The loop calls
	// it; it must not block.
	SavedEvents func() uint64
	// Pinned says that Loop runs on a goroutine locked to its thread, which therefore yields
	// seldom.
	Pinned bool
}

// Token is the turn of one reactor.
type Token struct {
	// word holds the state. Goroutines that take, release or want the turn, or wake the loop, write
	// it by CAS; any goroutine reads it. Taking the turn, or being given it, acquires everything
	// the last holder did.
	word atomic.Uint32
	_    [124]byte // submitters read word; keep the holder's fields off its line

	cfg   Config
	work  Work
	sleep Sleeper
	// loopHandoff gives the turn to the loop, callerHandoff to a goroutine in WithTurn. One place
	// each is enough: there is one loop, and the mutex callers admits one goroutine at a time. The
	// sender has cleared the want bit and does nothing as holder afterwards.
	loopHandoff, callerHandoff chan struct{}
	callers                    sync.Mutex
	slots                      []waiterSlot
	contention                 contention
	stats                      Stats
}

// Stats counts events; read it with Token.Stats. Holders and goroutines that wake the loop write
// the counters, any goroutine reads them, and they publish nothing.
type Stats struct {
	Wakeups        atomic.Uint64 // the loop was woken by Sleeper.Wake
	Drives         atomic.Uint64 // a waiting goroutine began to drive
	Offers         atomic.Uint64 // a driver gave the turn to a parked waiter
	LoopHandoffs   atomic.Uint64 // a holder gave the turn to the loop, which wanted it
	CallerHandoffs atomic.Uint64 // a holder gave the turn to a goroutine in WithTurn
	Sleeps         atomic.Uint64 // the loop went to sleep
	Spins          atomic.Uint64 // the loop began to spin
	SpinsInVain    atomic.Uint64 // the loop spun and found nothing within its budget
	Returned       atomic.Uint64 // a driver returned the turn to the spinning loop, unarmed
}

// New returns a token without a holder. Until Loop runs, or in a stepped reactor, only drivers,
// WithTurn and Step hold it. New never blocks.
func New(w Work, s Sleeper, cfg Config) *Token {
	return &Token{cfg: cfg, work: w, sleep: s, loopHandoff: make(chan struct{}, 1), callerHandoff: make(chan struct{}, 1),
		slots: make([]waiterSlot, slotCount)}
}

// Stats returns the token's counters. Any goroutine may read them at any time.
func (t *Token) Stats() *Stats { return &t.stats }

// take takes the turn if it has no holder, and reports whether it did.
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

// taken returns the word that follows s when a caller takes the turn.
func taken(s uint32) uint32 {
	if s == spinning {
		return held | loopSpins
	}
	return held
}

// Submitted wakes the loop if no goroutine is about to look for submissions. A submitter calls it
// after its push. It does not block; any goroutine may call it, the holder too.
func (t *Token) Submitted() {
	model.Yield("submitted")
	// In any other state a holder looks again before it leaves, or the loop is about to take the
	// turn. The load is cheaper than a CAS that fails.
	if t.word.Load() == asleep && t.word.CompareAndSwap(asleep, woken) {
		t.wakeLoop()
	}
}

// SubmittedBeforeDrive is Submitted for a submitter that calls Drive next: with caller driving it does not wake
// the loop. It does not block.
func (t *Token) SubmittedBeforeDrive() {
	if !t.cfg.CallerDriving {
		t.Submitted()
	}
}

// wakeLoop wakes the loop. The caller has just set the word to woken.
func (t *Token) wakeLoop() {
	model.Yield("bell")
	t.stats.Wakeups.Add(1)
	t.sleep.Wake()
}

// giveUp gives up the turn and sets the word to to, or to spinning if the loop spins. If a
// goroutine wants the turn, giveUp hands it over instead and returns false. In both cases the
// caller no longer holds the turn.
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

// wanted reports to the holder whether a goroutine waits for the turn.
func (t *Token) wanted() bool {
	return t.word.Load()&anyWants != 0
}

// handOver gives the turn to the goroutine that wants it, and reports whether there is one. The
// loop goes before a caller in WithTurn: the loop hands the turn on after its next pass, but the
// caller would not do the loop's tasks.
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
				to |= loopSpins // the loop gives the turn away and spins on
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

// waitFor takes the turn, or sets want in the word and parks until the holder sends on gate. When
// the loop waits it stops spinning.
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

// release gives the turn up, or hands it over if it is wanted. The caller has armed and polled
// empty. release returns false, and the caller still holds the turn, if something was submitted
// meanwhile.
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

// releaseToLoop leaves the turn and the remaining work to the loop: directly if it waits for the
// turn, else by a wake-up.
func (t *Token) releaseToLoop() {
	if t.giveUp(woken) {
		t.wakeLoop()
	}
}

// WithTurn runs fn while holding the turn, and returns after fn has. It parks while another
// goroutine holds the turn. A holder hands the turn over after its pass, so WithTurn waits for one
// pass and for earlier callers of WithTurn. It is for control work. Any goroutine may call it, also
// the loop's callbacks, but not the holder. If fn panics or ends the goroutine, WithTurn still
// gives the turn up.
func (t *Token) WithTurn(fn func()) {
	if !t.take() {
		t.callers.Lock()
		t.waitFor(callerWants, t.callerHandoff)
		t.callers.Unlock()
	}
	defer t.leave(true)
	fn()
}
