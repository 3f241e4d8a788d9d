package turn

import (
	"context"
	"runtime"
	"sync/atomic"
)

// seatCount is how many waiters can be offered the turn at a time. More than a
// few are never looked at: the first that is still parked takes it.
const seatCount = 8

// The states of a seat, in the two low bits of its word; the bits above count
// the sittings, so that a waiter recognises its own:
//
//	free → sitting (a waiter) → parked (it) ┬→ free (it)
//	                                        └→ taken (a leaver) → free (that leaver)
const (
	seatFree uint64 = iota
	seatSitting
	seatParked
	seatTaken
	seatStep // one sitting
	seatMask = seatStep - 1
)

// seat is a place for a waiter that can be given the turn.
type seat struct {
	// word: moved by CAS as drawn. parked publishes who to leavers; free
	// gives the seat to the next waiter.
	word atomic.Uint64
	who  Parker // written by the waiter while sitting, read by a leaver while taken
	_    [104]byte
}

const (
	// contextCheck is how many turns a driver makes between two looks at its
	// context.
	contextCheck = 64
	// leaveRounds is how often a driver that is done goes on for others before
	// it passes the turn to the loop.
	leaveRounds = 4
)

// Drive waits for w on behalf of its goroutine: it runs turns if nobody else
// does, and parks otherwise. It returns nil when w is settled, or the
// context's error.
func (t *Token) Drive(ctx context.Context, w Parker) error {
	// After a drive that found nothing the queues are armed: then it parks,
	// and drives again only if it is given the turn.
	may := t.cfg.CallerDriving
	for !w.Settled() {
		if may && t.take() {
			t.drive(ctx, w)
			if !w.Settled() && ctx.Err() != nil {
				return ctx.Err()
			}
			may = false
			continue
		}
		s, sitting := t.sit(w)
		if may && s != nil {
			yield("drive.recheck")
			if v := t.word.Load(); v == asleep || v == rung {
				// The holder may have left without seeing the seat.
				if t.stand(s, sitting, w) {
					t.drive(ctx, w)
					may = false
				}
				continue
			}
		}
		sig := w.Park(ctx)
		given := sig == SignalTurn
		if s != nil && t.stand(s, sitting, w) {
			given = true
		}
		if given {
			t.drive(ctx, w)
			may = false
		}
		if sig == SignalCancelled && !w.Settled() {
			return ctx.Err()
		}
	}
	return nil
}

// drive runs turns, holding, until w is settled, the context ends or nothing
// has come for a while; then it leaves.
func (t *Token) drive(ctx context.Context, w Parker) {
	t.stats.Drives.Add(1)
	for i, idle := 1, 0; !w.Settled(); i++ {
		if t.work.Turn(false) {
			idle = 0
		} else if idle++; idle > t.cfg.Spin {
			break
		} else {
			runtime.Gosched()
		}
		if i%contextCheck == 0 && ctx.Err() != nil {
			break
		}
	}
	t.leave()
}

// leave ends a driver's turn: it gives the turn to the loop if that wants it or
// has errands, or to a waiter if work is outstanding, or arms, polls again and
// releases.
func (t *Token) leave() {
	for range leaveRounds {
		if t.handWanted() {
			return
		}
		if t.work.Errands() {
			break
		}
		if (t.work.Outstanding() || t.work.Pending()) && t.offer() {
			return
		}
		if mutant != mutantNoArm && t.work.Turn(true) {
			continue
		}
		if t.work.Errands() {
			break
		}
		if t.release() {
			return
		}
	}
	t.pass()
}

// offer gives the turn to a parked waiter; false if there is none.
func (t *Token) offer() bool {
	if !t.cfg.CallerDriving {
		return false
	}
	for i := range t.seats {
		s := &t.seats[i]
		yield("offer.seat")
		v := s.word.Load()
		if v&seatMask != seatParked || !s.word.CompareAndSwap(v, v+(seatTaken-seatParked)) {
			continue
		}
		yield("offer.offer")
		ok := s.who.Offer()
		yield("offer.free")
		s.word.Store(v - seatParked + seatStep)
		if ok {
			t.stats.Offers.Add(1)
			return true
		}
	}
	return false
}

// sit registers w to be offered the turn. Without a free seat it only misses
// the chance: a settled w is woken all the same.
func (t *Token) sit(w Parker) (s *seat, sitting uint64) {
	if !t.cfg.CallerDriving {
		return nil, 0
	}
	for i := range t.seats {
		s := &t.seats[i]
		yield("sit.cas")
		v := s.word.Load()
		if v&seatMask == seatFree && s.word.CompareAndSwap(v, v+seatSitting) {
			s.who = w
			yield("sit.parked")
			s.word.Store(v + seatParked)
			return s, v
		}
	}
	return nil, 0
}

// stand takes w off its seat. True: an offer was accepted in w's name that no
// Park has reported; w's goroutine holds the turn.
func (t *Token) stand(s *seat, sitting uint64, w Parker) bool {
	yield("stand.cas")
	if !s.word.CompareAndSwap(sitting+seatParked, sitting+seatStep) {
		// A leaver has the seat, or had it: it holds on for a few instructions.
		for s.word.Load() == sitting+seatTaken {
			pause("stand.wait", func() bool { return s.word.Load() != sitting+seatTaken })
		}
	}
	return w.TakeOffer()
}
