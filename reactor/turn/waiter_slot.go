package turn

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The two low bits of waiterSlot.word are the state of the slot. The other bits count the uses of
// the slot. The count lets a waiter distinguish its own use of the slot from a later use. A leaver
// is a goroutine that gives up the turn. The diagram shows which goroutine changes the state:
//
//	              the waiter              a leaver
//	free ──> enlisting ──> parked ───────────────────> taken
//	 ^                      │  ^   refused: the leaver │  │ accepted: the leaver
//	 │      the waiter      │  └───────────────────────┘  │
//	 ├──────────────────────┘                             │
//	 └────────────────────────────────────────────────────┘
//
// The waiter of a slot in state parked may not be asleep: perhaps its goroutine has not parked yet, or
// has been woken. Such a waiter refuses an offer. The leaver then sets the slot back to parked, and
// other leavers may offer the turn again.
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
	// waiterSlot.word holds the state, which changes as in the diagram, and the count of uses. The
	// state parked publishes the field waiter to leavers. In state free, the next waiter may use
	// the slot.
	word   atomic.Uint64
	waiter Parker // written by the waiter in state enlisting, read by a leaver in state taken
	_      [104]byte
}

// slotCount is how many waiters can be offered the turn at a time. More slots would hardly be used,
// because a leaver searches the slots in order, and the first waiter that accepts gets the turn.
const slotCount = 8

// noSlot is the index that enlist returns if no slot is free.
const noSlot = -1

// offer() gives the turn to a parked waiter. It returns false if no waiter accepts the turn.
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

// enlist puts w into a free slot, so that leavers can offer the turn to w. It returns the arguments of
// delist: the index of the slot, and the slot's earlier word. If no slot is free, or if
// Config.CallerDriving is false, the index is noSlot. Then no leaver offers the turn to w, but the
// result of w still wakes w.
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

// delist frees the slot that enlist returned. After delist has returned, no leaver uses the waiter.
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
			return // the waiter accepted an offer, and the leaver freed the slot
		}
		// Wait for the leaver, which uses the waiter only for a few instructions.
		model.Pause("stand.wait", func() bool { return s.word.Load() != v })
	}
}
