package turn

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The word: one of four states, and, while held, who else wants the turn and what
// the loop does. See the package comment.
const (
	asleep   uint32 = 0
	woken    uint32 = 1
	spinning uint32 = 2
	held     uint32 = 4

	loopWants   uint32 = 8  // the loop waits for the baton
	callerWants uint32 = 16 // a goroutine in WithTurn waits for the grant
	loopSpins   uint32 = 32 // another than the loop holds, and the loop spins
	briefHold   uint32 = 64 // the spinning loop holds, for one turn

	anyWants = loopWants | callerWants
)

// Config says how a token behaves. The zero value works: no caller drives.
type Config struct {
	// CallerDriving lets goroutines that wait run turns themselves.
	CallerDriving bool
	// SpinMode is what ends spinning; the zero value is SpinPasses.
	SpinMode SpinMode
	// Spin is how many empty turns in a row the loop or a driver makes before
	// it arms and sleeps or parks; of SpinPasses.
	Spin int
	// Budget is the budget of SpinTimed; needed there, and the token's from New on.
	Budget *Budget
	// SavedEvents counts what drivers found that would have woken the loop had it
	// not spun, so that it knows what its spinning is good for; nil: nothing.
	// The loop asks; it does not block.
	SavedEvents func() uint64
	// Pinned says that Loop is called on a goroutine locked to its thread, which
	// therefore yields seldom.
	Pinned bool
}

// Token is the turn of one reactor.
type Token struct {
	// word: written by CAS by whoever takes, leaves, rings or wants the turn;
	// read by all. Taking the turn, or being given it, acquires all that the
	// last holder did.
	word atomic.Uint32
	_    [124]byte // submitters read word; keep the holder's fields off its line

	cfg   Config
	work  Work
	sleep Sleeper
	// baton gives the turn to the loop, grant to the one that knocks. Room for
	// one: there is one loop, and knocking lets one goroutine at a time knock.
	// Who sends has cleared the want bit and does nothing as holder afterwards.
	loopHandoff, callerHandoff chan struct{}
	callers                    sync.Mutex
	slots                      []waiterSlot
	contention                 contention
	stats                      Stats
}

// Stats count what happened; read with Token.Stats. All are written by holders
// and ringers, read by anyone, and publish nothing.
type Stats struct {
	Wakeups        atomic.Uint64 // the bell was written
	Drives         atomic.Uint64 // a waiting goroutine began to run turns
	Offers         atomic.Uint64 // a driver gave the turn to a parked waiter
	LoopHandoffs   atomic.Uint64 // a holder gave the turn to the loop that wanted it
	CallerHandoffs atomic.Uint64 // a holder gave the turn to a goroutine in WithTurn
	Sleeps         atomic.Uint64 // the loop went to sleep
	Spins          atomic.Uint64 // the loop began to spin
	SpinsInVain    atomic.Uint64 // of those, it found nothing for its budget
	Returned       atomic.Uint64 // a driver left the turn to the spinning loop, unarmed
}

// New makes a token that nobody holds. Until Loop runs, or in a stepped
// reactor, only drivers, WithTurn and Step hold it. It never blocks.
func New(w Work, s Sleeper, cfg Config) *Token {
	return &Token{cfg: cfg, work: w, sleep: s, loopHandoff: make(chan struct{}, 1), callerHandoff: make(chan struct{}, 1),
		slots: make([]waiterSlot, slotCount)}
}

// Stats are the token's counters; anyone may read them at any time.
func (t *Token) Stats() *Stats { return &t.stats }

// take gets the turn if nobody holds it.
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

// taken is what the word becomes when another than the loop takes the turn.
func taken(s uint32) uint32 {
	if s == spinning {
		return held | loopSpins
	}
	return held
}

// Submitted is called by a submitter after its push. It rings the loop if
// nobody is going to look. It does not block; any goroutine may call it, the
// holder too.
func (t *Token) Submitted() {
	model.Yield("submitted")
	// If not asleep a holder looks again before it leaves, or the loop is on its
	// way. The load is cheaper than a CAS that fails.
	if t.word.Load() == asleep && t.word.CompareAndSwap(asleep, woken) {
		t.wakeLoop()
	}
}

// Quiet is Submitted for a submitter that goes on to Drive at once: then the
// bell is not needed. Without caller driving it rings. It does not block.
func (t *Token) Quiet() {
	if !t.cfg.CallerDriving {
		t.Submitted()
	}
}

// wakeLoop wakes the loop. The caller has just made the word rung.
func (t *Token) wakeLoop() {
	model.Yield("bell")
	t.stats.Wakeups.Add(1)
	t.sleep.Wake()
}

// giveUp leaves the word at to, or watched where the loop spins, unless somebody
// wants the turn: then it is given there, and drop returns false. Either way the
// caller holds no more.
func (t *Token) giveUp(to uint32) bool {
	model.Yield("drop")
	for {
		if t.word.CompareAndSwap(held, to) {
			return true
		}
		switch s := t.word.Load(); {
		case s < held:
			panic("turn: given up by one who does not hold it")
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

// wanted tells the holder whether somebody waits for the turn.
func (t *Token) wanted() bool {
	return t.word.Load()&anyWants != 0
}

// handOver gives the turn to who wants it: the loop before the one that knocks,
// because the loop lets him in at its next turn, but he would not look.
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
				to |= loopSpins // the loop gives it away and spins on
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

// waitFor takes the turn, or has its holder give it through gate. A loop that waits
// does not spin.
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

// release gives the turn up, to nobody or to who wants it. The caller has armed
// and polled empty. False: it still holds, because something was submitted
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
		return true // somebody took the turn, or rang
	}
	model.Yield("retaken")
	return false
}

// releaseToLoop leaves the turn to the loop, which sees to what is left: directly if it
// waits for the turn, else by the bell.
func (t *Token) releaseToLoop() {
	if t.giveUp(woken) {
		t.wakeLoop()
	}
}

// WithTurn runs fn holding the turn, and returns when fn has. It parks while
// others hold; a holder lets it in after the turn it is in, so that it waits
// for one turn, or for those that knocked before. For control work; not from
// the turn, but from any goroutine, the loop's callbacks too. If fn panics or ends the
// goroutine the turn is given up all the same.
func (t *Token) WithTurn(fn func()) {
	if !t.take() {
		t.callers.Lock()
		t.waitFor(callerWants, t.callerHandoff)
		t.callers.Unlock()
	}
	defer t.leave(true)
	fn()
}
