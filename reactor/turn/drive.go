package turn

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/model"
)

// Drive waits for w on behalf of the calling goroutine. It runs passes if the turn has no holder,
// and parks otherwise. It returns when w is settled, or soon after done is closed; if done is nil,
// only settling ends the wait. It allocates nothing. Other goroutines may use w until Drive
// returns.
//
// The argument done is the channel of the wait's context. Drive does not take the context itself,
// because its methods may be user code, which could panic, end the goroutine or call WithTurn while
// the turn is held.
func (t *Token) Drive(done <-chan struct{}, w Parker) {
	t.contention.yield()
	// The caller takes the turn by itself at most one time. After it has driven, it parks, and
	// drives again only if it is offered the turn.
	t.driveOrPark(done, w, t.cfg.CallerDriving, true)
}

// driveOrPark is the body of Drive. If may is true, the caller may take the turn without an offer.
// If first is true, done is not checked in the first round.
func (t *Token) driveOrPark(done <-chan struct{}, w Parker, may, first bool) {
	for ; ; first = false {
		model.Mark("drive", 2*ifTrue(may)+ifTrue(first))
		if w.Settled() {
			return
		}
		// In the first round of Drive, a pass must run before done is checked: the caller may have
		// used SubmittedBeforeDrive, which does not wake the loop.
		if !first && isDone(done) {
			return
		}
		model.Mark("drive.go", ifTrue(may))
		taken := may && t.takeAfterBriefHold()
		if first && may {
			t.contention.note(taken)
		}
		if taken || t.park(done, w, may) {
			t.drive(done, w)
			may = false
		}
	}
}

// Begin takes the turn for a goroutine that is about to submit and to wait, and reports whether it
// did. It does not if the turn has a holder or callers do not drive. If Begin returns true, the
// goroutine must call Resume or Leave.
func (t *Token) Begin() bool {
	return t.cfg.CallerDriving && t.takeAfterBriefHold()
}

// Leave gives up the turn that Begin took.
func (t *Token) Leave() {
	t.leave(true)
}

// Resume is Drive for a goroutine that took the turn by Begin. When Resume returns, the goroutine
// no longer holds the turn.
func (t *Token) Resume(done <-chan struct{}, w Parker) {
	t.drive(done, w)
	t.driveOrPark(done, w, false, false)
}

// park parks w until w is settled, done is closed or w is given the turn, and reports whether w was
// given the turn. If may is true and the turn has no holder, park returns false without parking, so
// that the caller takes the turn: the last holder may have left before w was in its slot. (Parking
// would lose nothing, but w would wait until the loop wakes.)
func (t *Token) park(done <-chan struct{}, w Parker, may bool) (given bool) {
	place, sitting := t.enlist(w)
	model.Mark("sat", 2*place+ifTrue(may))
	if may && place != noSlot {
		model.Yield("park.recheck")
		if t.word.Load() < held {
			t.delist(place, sitting)
			return false
		}
	}
	given = w.Park(done) == SignalTurn
	model.Mark("parked", 4*place+2*ifTrue(may)+ifTrue(given))
	t.delist(place, sitting)
	return given
}

// checkEvery is how many passes a driver runs between two checks of done and of the loop tasks. A
// busy pass takes about a microsecond, a check some nanoseconds. In the model build it is 1, so
// that the model need not count passes.
const checkEvery = 64 - 63*model.On

// isDone reports whether done is closed.
func isDone(done <-chan struct{}) bool {
	if model.On == 1 && done == nil {
		return false // not a step of the model
	}
	model.Yield("over")
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// drive runs passes until w is settled, no completions come, another goroutine wants the turn,
// there are loop tasks, or done is closed. Then it gives up the turn by leave. The caller holds the
// turn.
func (t *Token) drive(done <-chan struct{}, w Parker) {
	t.stats.Drives.Add(1)
	tired := false
	var sp spinRun
	for i, idle := 1, 0; ; i++ {
		model.Mark("driving", idle)
		if w.Settled() {
			break
		}
		model.Yield("turn")
		if t.work.Pass(false) {
			idle = 0
		} else if idle++; t.driverExpired(idle, &sp) {
			tired = true
			break
		} else {
			t.driverPause(idle, w)
		}
		if t.wanted() {
			break
		}
		if i%checkEvery == 0 && (isDone(done) || t.work.NeedsLoop()) {
			break
		}
	}
	// A driver that found nothing does not offer the turn. The next driver would find nothing
	// either, and two drivers would offer the turn to each other forever.
	t.leave(!tired)
}

// leaveRounds is how many times a leaving driver repeats its steps, because its last poll found
// work, before it leaves the turn to the loop. In the model build it is 2, enough to search all
// pairs of successive rounds.
const leaveRounds = 4 - 2*model.On

// leave gives up the caller's turn, in the order that the package comment gives under "How a driver
// leaves". It offers the turn to parked waiters only if mayOffer is true.
func (t *Token) leave(mayOffer bool) {
	for round := range leaveRounds {
		model.Mark("leave", 2*round+ifTrue(mayOffer))
		if s := t.word.Load(); s != held && (s&anyWants != 0 && t.handOver() || s&loopSpins != 0 && t.returnToSpinner()) {
			return
		}
		if t.work.NeedsLoop() {
			break
		}
		if mayOffer && (t.work.Outstanding() || t.work.Pending()) && t.offer() {
			return
		}
		model.Mark("leave.arm", 2*round+ifTrue(mayOffer))
		model.Yield("turn.arm")
		if t.work.Pass(true) {
			continue
		}
		model.Mark("leave.release", 2*round+ifTrue(mayOffer))
		if t.work.NeedsLoop() {
			break
		}
		if t.release() {
			return
		}
	}
	model.Mark("pass", 0)
	t.releaseToLoop()
}

// takeAfterBriefHold takes the turn and reports whether it did. If the spinning loop holds the turn
// for one pass, takeAfterBriefHold waits for the end of this pass.
func (t *Token) takeAfterBriefHold() bool {
	for !t.take() {
		if !t.waitOutBriefHold() {
			return false
		}
		model.Again()
	}
	return true
}

// briefLoads is how many times a caller loads the word while it waits for the spinning loop's pass
// to end. The loads take some 5 µs, enough for an empty pass. Parking and being woken would cost
// more.
const briefLoads = 8192

// waitOutBriefHold waits while the word has briefHold, and returns true if the turn is free then.
// It returns false if another goroutine is the holder or the pass takes too long.
func (t *Token) waitOutBriefHold() bool {
	model.Yield("take.brief")
	for range briefLoads {
		if s := t.word.Load(); s < held {
			return true
		} else if s&briefHold == 0 {
			break
		}
		model.Block("take.outlast", func() bool { return t.word.Load()&briefHold == 0 })
	}
	return false
}

func ifTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Waiter returns a [Parker] for a futures waiter. It allocates nothing. With it, a futures.Driver
// is one line:
//
//	func (r *Reactor) Drive(done <-chan struct{}, w *futures.Waiter) error {
//		r.token.Drive(done, turn.Waiter(w))
//		return nil
//	}
func Waiter(w *futures.Waiter) Parker { return (*waiter)(w) }

type waiter futures.Waiter

func (w *waiter) future() *futures.Waiter { return (*futures.Waiter)(w) }

func (w *waiter) Settled() bool { return w.future().Settled() }

func (w *waiter) Park(done <-chan struct{}) Signal {
	switch w.future().Park(done) {
	case futures.SignalTurn:
		return SignalTurn
	case futures.SignalCancelled:
		return SignalCancelled
	}
	return SignalSettled
}

func (w *waiter) Offer() bool { return w.future().Offer() }
