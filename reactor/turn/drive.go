package turn

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/model"
)

// Drive waits for w on behalf of the calling goroutine. It runs passes if the turn has no holder,
// and parks otherwise. It returns when w is settled, or when it finds that done is closed. If done is
// nil, the wait ends only when w is settled. Drive allocates nothing. Other goroutines may call the
// methods of w until Drive returns.
//
// The caller gets done from a context. Drive does not take the context itself, because methods of a
// context may be user code: they could panic, end the goroutine or call WithTurn while the turn is
// held.
func (t *Token) Drive(done <-chan struct{}, w Parker) {
	t.contention.yield()
	// The caller takes the turn without an offer at most one time. After it has driven, it parks. Then
	// it drives again only if another goroutine offers the turn to it.
	t.driveOrPark(done, w, t.cfg.CallerDriving, true)
}

// driveOrPark is the body of Drive. If may is true, the caller is allowed to take the turn without an
// offer. If first is true, the first round does not check whether done is closed.
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

// Begin takes the turn for a goroutine that is about to submit and to wait. It returns false if the
// turn has a holder or if Config.CallerDriving is false. If Begin returns true, the goroutine must
// call Resume or Leave.
func (t *Token) Begin() bool {
	return t.cfg.CallerDriving && t.takeAfterBriefHold()
}

// Leave gives up the turn that Begin took.
func (t *Token) Leave() {
	t.leave(true, false)
}

// TryPass runs a pass and gives up the turn, if Begin returns true, and reports whether it did. The pass is the arming
// pass of leave, too, unless it may have left completions that raise no event: a goroutine that polls runs one pass
// each time, and not two.
func (t *Token) TryPass() bool {
	if !t.Begin() {
		return false
	}
	model.Yield("turn")
	arm := t.word.Load()&loopSpins == 0 // the spinning loop looks again: see returnToSpinner
	model.Mark("try", ifTrue(arm))
	did := t.work.Pass(arm)
	t.leave(true, arm && (!did || t.work.Armed()))
	return true
}

// Resume is Drive for a goroutine that has taken the turn with Begin. When Resume returns, the
// goroutine no longer holds the turn.
func (t *Token) Resume(done <-chan struct{}, w Parker) {
	t.drive(done, w)
	t.driveOrPark(done, w, false, false)
}

// park parks w until w is settled, done is closed or w is given the turn. It returns true if w was
// given the turn. With may == true, if the turn has no holder, park does not park w but returns false,
// so that the caller takes the turn. (The last holder may have left before w was in a waiter slot. If
// w then parked, its result would not be lost, but w would wait until the loop wakes.)
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
// busy pass takes about a microsecond, and a check takes some nanoseconds. In the model build
// checkEvery is 1, so that the model need not count passes.
const checkEvery = 64 - 63*model.On

// isDone reports whether done is closed.
func isDone(done <-chan struct{}) bool {
	if model.On == 1 && done == nil {
		return false // without a Yield: the check of a nil channel is no step of the model
	}
	model.Yield("over")
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// drive runs passes until one of these conditions holds: w is settled, several passes in a row have
// found nothing, there is nothing to find (Work.Quiet), another goroutine wants the turn, there are loop
// tasks, done is closed. Then drive gives up the turn. The caller must hold the turn.
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
		} else {
			idle++
		}
		if t.cfg.SpinMode == SpinPasses && t.work.Quiet() || idle > 0 && t.driverExpired(idle, &sp) {
			tired = true
			break
		}
		if idle > 0 {
			t.driverPause(idle, w)
		}
		if t.wanted() {
			break
		}
		if i%checkEvery == 0 && (isDone(done) || t.work.NeedsLoop()) {
			break
		}
	}
	// A driver that leaves because it found nothing does not offer the turn: the next driver would
	// find nothing either, and two drivers would offer the turn to each other forever. A driver seldom has to arm:
	// without the pass that leave would run, a round trip by Call and Reply on the null device takes 2.88 µs in place
	// of 3.09, and one on the software RNIC 3.67 in place of 3.77 (one processor).
	t.leave(!tired, t.work.Armed())
}

// leaveRounds limits the rounds of leave(). Another round follows if the pass of a round finds work,
// or if release() takes the turn again. After leaveRounds such rounds, the turn goes to the loop. In
// the model build the limit is 2, which is enough to search all pairs of successive rounds.
const leaveRounds = 4 - 2*model.On

// leave gives up the turn, which the caller holds. The package comment lists the possible next
// holders under "How a driver leaves". Parked waiters are offered the turn only if mayOffer is true.
// The argument armed says that no pass is needed before the turn is given up: the last pass armed and found nothing, or
// Work.Armed returned true after it.
func (t *Token) leave(mayOffer, armed bool) {
	for round := range leaveRounds {
		model.Mark("leave", 4*round+2*ifTrue(armed)+ifTrue(mayOffer))
		if s := t.word.Load(); s != held && (s&anyWants != 0 && t.handOver() || s&loopSpins != 0 && t.returnToSpinner()) {
			return
		}
		if t.work.NeedsLoop() {
			break
		}
		if mayOffer && (t.work.Outstanding() || t.work.Pending()) && t.offer() {
			return
		}
		if !armed {
			model.Mark("leave.arm", 2*round+ifTrue(mayOffer))
			model.Yield("turn.arm")
			if t.work.Pass(true) {
				continue
			}
		}
		model.Mark("leave.release", 2*round+ifTrue(mayOffer))
		if t.work.NeedsLoop() {
			break
		}
		if t.release() {
			return
		}
		armed = false
	}
	model.Mark("pass", 0)
	t.releaseToLoop()
}

// takeAfterBriefHold takes the turn if it has no holder, and reports whether it did. If the spinning
// loop holds the turn for one pass, takeAfterBriefHold first waits for the end of this pass.
func (t *Token) takeAfterBriefHold() bool {
	for !t.take() {
		if !t.waitOutBriefHold() {
			return false
		}
		model.Again()
	}
	return true
}

// briefLoads is how many times, at most, a caller loads the word while it waits for the end of the
// spinning loop's pass. These loads take some 5 µs, which is enough for an empty pass. To park and be
// woken would cost more.
const briefLoads = 8192

// waitOutBriefHold waits while the bit briefHold is set in the word. It returns true if the turn then
// has no holder. It returns false if another goroutine is the holder, or if the pass takes longer
// than briefLoads loads.
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

// Waiter returns a [Parker] for a futures waiter. It allocates nothing. For example, a futures.Driver
// calls it in its method Drive:
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
