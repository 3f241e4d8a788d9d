package turn

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The states of a waiter slot are in the two low bits of its word. The bits above count the uses of
// the slot, so that a waiter can tell its own use from a later one. A leaver is a goroutine that
// gives up the turn.
//
//	              the waiter              a leaver
//	free ──> enlisting ──> parked ───────────────────> taken
//	 ^                      │  ^   refused: the leaver │  │ accepted: the leaver
//	 │      the waiter      │  └───────────────────────┘  │
//	 ├──────────────────────┘                             │
//	 └────────────────────────────────────────────────────┘
//
// A waiter refuses an offer if its goroutine has not parked yet or is no longer parked. The leaver
// then sets the slot back to parked, and other leavers may offer again.
const (
	slotFree      uint64 = iota
	slotEnlisting        // the waiter writes waiterSlot.waiter
	slotParked           // published to leavers
	slotTaken            // a leaver uses waiterSlot.waiter; delist waits until the leaver is done
	slotStep             // adds one use to the count
	slotMask      = slotStep - 1
)

// waiterSlot is a place for a waiter that can be offered the turn.
type waiterSlot struct {
	// word holds the state and changes as in the diagram. The state parked publishes the field
	// waiter to leavers. The state free lets the next waiter use the slot.
	word   atomic.Uint64
	waiter Parker // written by the waiter while enlisting, read by a leaver while taken
	_      [104]byte
}

// slotCount is how many waiters can be offered the turn at a time. More slots would hardly be used:
// a leaver searches them in order, and the first parked waiter takes the turn.
const slotCount = 8

// noSlot is returned by enlist in place of an index if no slot is free.
const noSlot = -1

// offer gives the turn to a parked waiter; it returns false if there is none.
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

// enlist puts w into a free slot, so that leavers can offer it the turn. It returns the index of
// the slot and the slot's earlier word, for delist. If no slot is free it returns noSlot: w is not
// offered the turn, but w's result still wakes it.
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

// delist frees the slot that enlist returned. When delist returns, no leaver uses the waiter.
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
		// A leaver uses the waiter for a few instructions.
		model.Pause("stand.wait", func() bool { return s.word.Load() != v })
	}
}
