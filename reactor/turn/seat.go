package turn

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The states of a seat, in the two low bits of its word; the bits above count
// the sittings, so that a waiter recognises its own:
//
//	            the waiter           a leaver
//	free ──> sitting ──> parked ─────────────────> taken
//	 ^                    │  ^   refused: that leaver │ accepted: that leaver
//	 └────────────────────┘  └────────────────────────┤
//	 ^      the waiter                                │
//	 └────────────────────────────────────────────────┘
//
// A refused offer found its waiter before it parked, or after; so the seat is
// put back, and other leavers may ask again.
const (
	seatFree    uint64 = iota
	seatSitting        // the waiter writes who
	seatParked         // published to leavers
	seatTaken          // a leaver reads who; the waiter stays until it is through
	seatStep           // one sitting
	seatMask    = seatStep - 1
)

// seat is a place for a waiter that can be given the turn.
type seat struct {
	// word: moved by CAS as drawn. parked publishes who to leavers; free
	// gives the seat to the next waiter.
	word atomic.Uint64
	who  Parker // written by the waiter while sitting, read by a leaver while taken
	_    [104]byte
}

// seatCount is how many waiters can be offered the turn at a time. More than a
// few are never looked at: the first that is still parked takes it.
const seatCount = 8

// noSeat is the place of a waiter that found none free.
const noSeat = -1

// offer gives the turn to a parked waiter; false if there is none.
func (t *Token) offer() bool {
	if !t.cfg.CallerDriving {
		return false
	}
	for i := range t.seats {
		s := &t.seats[i]
		model.Yield("offer.seat")
		v := s.word.Load()
		if v&seatMask != seatParked || !s.word.CompareAndSwap(v, v+(seatTaken-seatParked)) {
			continue
		}
		model.Yield("offer.offer")
		if s.who.Offer() {
			model.Yield("offer.gave")
			s.word.Store(v - seatParked + seatStep)
			t.stats.Offers.Add(1)
			return true
		}
		model.Yield("offer.refused")
		s.word.Store(v)
	}
	return false
}

// sit registers w to be offered the turn. Without a free seat it only misses
// the chance (place is noSeat): a settled w is woken all the same.
func (t *Token) sit(w Parker) (place int, sitting uint64) {
	if !t.cfg.CallerDriving {
		return noSeat, 0
	}
	for i := range t.seats {
		s := &t.seats[i]
		model.Yield("sit")
		v := s.word.Load()
		if v&seatMask == seatFree && s.word.CompareAndSwap(v, v+seatSitting) {
			s.who = w
			s.word.Store(v + seatParked)
			return i, v
		}
	}
	return noSeat, 0
}

// stand takes a waiter off its seat: no leaver is at it, or comes, when it returns.
func (t *Token) stand(place int, sitting uint64) {
	if place == noSeat {
		return
	}
	s := &t.seats[place]
	for {
		model.Yield("stand")
		v := s.word.Load()
		if v == sitting+seatParked {
			if s.word.CompareAndSwap(v, sitting+seatStep) {
				return
			}
			continue
		}
		if v != sitting+seatTaken {
			return // an offer was accepted
		}
		// A leaver holds the waiter for a few instructions.
		model.Pause("stand.wait", func() bool { return s.word.Load() != v })
	}
}
