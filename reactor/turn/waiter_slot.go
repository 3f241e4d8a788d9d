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
	slotFree      uint64 = iota
	slotEnlisting        // the waiter writes who
	slotParked           // published to leavers
	slotTaken            // a leaver reads who; the waiter stays until it is through
	slotStep             // one sitting
	slotMask      = slotStep - 1
)

// waiterSlot is a place for a waiter that can be given the turn.
type waiterSlot struct {
	// word: moved by CAS as drawn. parked publishes who to leavers; free
	// gives the seat to the next waiter.
	word   atomic.Uint64
	waiter Parker // written by the waiter while sitting, read by a leaver while taken
	_      [104]byte
}

// slotCount is how many waiters can be offered the turn at a time. More than a
// few are never looked at: the first that is still parked takes it.
const slotCount = 8

// noSlot is the place of a waiter that found none free.
const noSlot = -1

// offer gives the turn to a parked waiter; false if there is none.
func (t *Token) offer() bool {
	if !t.cfg.CallerDriving {
		return false
	}
	for i := range t.slots {
		s := &t.slots[i]
		model.Yield("offer.seat")
		v := s.word.Load()
		if v&slotMask != slotParked || !s.word.CompareAndSwap(v, v+(slotTaken-slotParked)) {
			continue
		}
		model.Yield("offer.offer")
		if s.waiter.Offer() {
			model.Yield("offer.gave")
			s.word.Store(v - slotParked + slotStep)
			t.stats.Offers.Add(1)
			return true
		}
		model.Yield("offer.refused")
		s.word.Store(v)
	}
	return false
}

// enlist registers w to be offered the turn. Without a free seat it only misses
// the chance (place is noSlot): a settled w is woken all the same.
func (t *Token) enlist(w Parker) (place int, sitting uint64) {
	if !t.cfg.CallerDriving {
		return noSlot, 0
	}
	for i := range t.slots {
		s := &t.slots[i]
		model.Yield("sit")
		v := s.word.Load()
		if v&slotMask == slotFree && s.word.CompareAndSwap(v, v+slotEnlisting) {
			s.waiter = w
			s.word.Store(v + slotParked)
			return i, v
		}
	}
	return noSlot, 0
}

// delist takes a waiter off its seat: no leaver is at it, or comes, when it returns.
func (t *Token) delist(place int, sitting uint64) {
	if place == noSlot {
		return
	}
	s := &t.slots[place]
	for {
		model.Yield("stand")
		v := s.word.Load()
		if v == sitting+slotParked {
			if s.word.CompareAndSwap(v, sitting+slotStep) {
				return
			}
			continue
		}
		if v != sitting+slotTaken {
			return // an offer was accepted
		}
		// A leaver holds the waiter for a few instructions.
		model.Pause("stand.wait", func() bool { return s.word.Load() != v })
	}
}
