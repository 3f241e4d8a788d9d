package turn

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/model"
)

// Drive waits for w on behalf of its goroutine: it runs turns if nobody else
// does, and parks otherwise. It returns when w is settled, or soon after done was
// closed; nil never ends the wait. It allocates nothing. w is used by others until
// it returns, and not after.
//
// done is the channel of the wait's context. The context itself does not come here:
// Err and Done may be user code, which could panic, end the goroutine or want the
// turn while it is held.
func (t *Token) Drive(done <-chan struct{}, w Parker) {
	t.contention.yield()
	// After a drive the queues are armed or somebody else holds: then it parks,
	// and drives again only if it is given the turn.
	t.driveOrPark(done, w, t.cfg.CallerDriving, true)
}

// driveOrPark is Drive from where w may take the turn, or may not any more; first says that
// it has not looked yet.
func (t *Token) driveOrPark(done <-chan struct{}, w Parker, may, first bool) {
	for ; ; first = false {
		model.Mark("drive", 2*ifTrue(may)+ifTrue(first))
		if w.Settled() {
			return
		}
		// Not at first: what was submitted with Quiet must be seen by somebody.
		if !first && isDone(done) {
			return
		}
		model.Mark("drive.go", ifTrue(may))
		taken := may && t.takeOrOutwait()
		if first && may {
			t.contention.note(taken)
		}
		if taken || t.park(done, w, may) {
			t.drive(done, w)
			may = false
		}
	}
}

// Begin takes the turn, if nobody has it and callers drive, for a goroutine that is
// about to submit and to wait. Resume or Leave must follow, on that goroutine.
func (t *Token) Begin() bool {
	return t.cfg.CallerDriving && t.takeOrOutwait()
}

// Leave gives the turn up that Begin took.
func (t *Token) Leave() {
	t.leave(true)
}

// Resume is Drive for a goroutine that holds the turn, by Begin; when it returns it
// does not any more.
func (t *Token) Resume(done <-chan struct{}, w Parker) {
	t.drive(done, w)
	t.driveOrPark(done, w, false, false)
}

// park parks w until it is settled or cancelled, or given the turn (true). With
// may it returns without parking if the turn was released meanwhile: its last
// holder may not have seen the seat. (Nothing would be lost, the loop settles
// w; but w would wait for the loop to wake.)
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

// checkEvery is how many turns a driver makes between two looks at its context's
// channel and the errands: a busy turn is about a microsecond, a look some
// nanoseconds. In the model it is one, so that how long a driver drives makes no difference.
const checkEvery = 64 - 63*model.On

// isDone reports whether the wait is to end.
func isDone(done <-chan struct{}) bool {
	if model.On == 1 && done == nil {
		return false // no step
	}
	model.Yield("over")
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// drive runs turns, holding, until w is settled or nothing comes any more, or
// somebody wants the turn, or there is something for the loop, or done is
// closed; then it leaves.
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
	// Who leaves because nothing comes does not offer: the next would find
	// nothing either, and two would hand the turn to and fro without end.
	t.leave(!tired)
}

// leaveRounds is how often a driver that is done goes on for others before it
// passes the turn to the loop. In the model it is two, so that each way out of a round is
// followed by each.
const leaveRounds = 4 - 2*model.On

// leave ends a driver's turn: it gives the turn to the loop if that wants it, or
// spins, or has errands, or to a waiter if it may and work is outstanding, or arms, polls
// again and releases.
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

// takeOrOutwait is take for who finds a spinning loop looking: it waits for that turn.
func (t *Token) takeOrOutwait() bool {
	for !t.take() {
		if !t.outwaitBrief() {
			return false
		}
		model.Again()
	}
	return true
}

// briefLoads is for how many looks at the word a caller waits for the spinning loop's
// turn to end: some 5 µs, in which an empty turn, and a slice of polling in a device, is
// over. Parking and being woken cost more.
const briefLoads = 8192

// outwaitBrief waits for a brief turn of the loop; false: there is none, or it is long.
func (t *Token) outwaitBrief() bool {
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

// Waiter makes a [Parker] of what futures give to their driver. It allocates
// nothing. A driver is then one line:
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
