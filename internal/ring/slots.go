package ring

import "sync/atomic"

// Slots is a pool of free slot indices for which goroutines can wait, in order. Who
// has a slot has been admitted: there is no second count. Without waiters it is a
// [FreeList] and one load more; waiters are served by whoever gives back, through a
// channel of the Go runtime.
//
//	        the list has one, nobody waits
//	start ----------------------------------> has a slot ----------> PutN:
//	  |                                          ^         to the list, and while
//	  | waiting+1                                |         somebody waits: out of it,
//	  v              handed                      |         waiting-1, handed
//	waits ---------------------------------------+
//	  |
//	  | done or closed
//	  v
//	leaves --- waiting > 0: waiting-1 ------------> error
//	  |        (one waiter fewer; no slot was meant for us)
//	  |
//	  +------- waiting = 0: a slot is under way for each who waits,
//	           so for us: take it, Put it --------> error
//
// What holds, with W the goroutines in "waits" or "leaves" and K the slots handed or
// about to be: W = waiting + K. And nobody waits beside a free slot: if there is one
// on the list while waiting > 0, somebody is about to hand it out. Who puts it there
// looks at waiting afterwards; who makes waiting 1 looks at the list afterwards; of
// two who do that at once at least one sees the other; and who hands out goes on
// until the list is empty or nobody waits.
//
// A waiter that leaves in the second way waits for one that is between its two
// steps; see [Credits]. Nobody else ever waits for another goroutine's step.
type Slots struct {
	list FreeList
	// waiting is described above. Written by waiters, leavers and those who hand
	// out; read by everyone before he takes from the list. It publishes nothing.
	waiting atomic.Int64
	_       pad

	handed chan uint32 // as many places as slots: sending never blocks
	done   chan struct{}
	// closed is set by Close before it closes done; read by waiters.
	closed atomic.Bool
}

// NewSlots makes slots on which 0 to n-1 are free; Get gives 0 first. It panics
// unless 0 < n < 2^32-1.
func NewSlots(n int) *Slots {
	s := &Slots{handed: make(chan uint32, n), done: make(chan struct{})}
	s.list.init(n)
	return s
}

// Get takes a free slot, or reports false if there is none or others wait for one.
// It belongs to the caller until Put. Any goroutine may call it, also after Close; it
// does not block or allocate.
func (s *Slots) Get() (uint32, bool) {
	if s.waiting.Load() > 0 {
		return 0, false
	}
	return s.list.Get()
}

// GetN takes up to len(is) free slots, with one change of the shared word, and returns
// how many; 0 as Get says. Otherwise as Get.
func (s *Slots) GetN(is []uint32) int {
	if s.waiting.Load() > 0 {
		return 0
	}
	return s.list.GetN(is)
}

// Wait takes a slot, waiting for one if none is free. Who waits longer is served
// first, as the channel of the Go runtime has it; a newcomer never overtakes. Any
// goroutine may call it. It does not allocate. done is a channel, and not a context,
// because a context's methods may be user code, which could end the goroutine while it
// is counted as waiting; nil never ends the wait.
//
// Errors: [ErrDone] if done is closed first, and [ErrClosed]. With an error the caller
// has no slot, and none was lost.
func (s *Slots) Wait(done <-chan struct{}) (uint32, error) {
	if s.closed.Load() {
		return 0, ErrClosed
	}
	if s.waiting.Add(1) == 1 {
		s.handOut()
	}
	select {
	case i := <-s.handed:
		return i, nil
	case <-done:
		s.leave()
		return 0, ErrDone
	case <-s.done:
		s.leave()
		return 0, ErrClosed
	}
}

// leave ends the wait of a goroutine that took no slot. If one is on its way already
// it is taken and given back.
func (s *Slots) leave() {
	if !s.strike() {
		s.Put(<-s.handed)
	}
}

// strike takes one from waiting; false: nobody waits any more for whom no slot is
// under way.
func (s *Slots) strike() bool {
	for {
		n := s.waiting.Load()
		if n == 0 {
			return false
		}
		if s.waiting.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// handOut moves slots from the list to those who wait.
func (s *Slots) handOut() {
	for s.waiting.Load() > 0 {
		i, ok := s.list.Get()
		if !ok {
			return
		}
		if s.strike() {
			select {
			case s.handed <- i:
			default:
				panic("ring: a slot was given back twice")
			}
		} else {
			s.list.Put(i) // somebody may have come just now: look again
		}
	}
}

// Put gives i back, which must come from Get or Wait. Any goroutine may call it, also
// after Close; it does not block or allocate.
func (s *Slots) Put(i uint32) {
	s.list.Put(i)
	if s.waiting.Load() > 0 {
		s.handOut()
	}
}

// PutN gives several slots back with one change of the shared word; Get gives is[0]
// first. Otherwise as Put.
func (s *Slots) PutN(is []uint32) {
	s.list.PutN(is)
	if s.waiting.Load() > 0 {
		s.handOut()
	}
}

// Collect takes a free slot whoever waits, or reports false if there is none. It is
// for an owner who waits, after Close, until all slots are home.
func (s *Slots) Collect() (uint32, bool) { return s.list.Get() }

// Close makes all waiters and all later ones fail. Slots may still be taken by Get and
// given back. It is idempotent, does not block, and any goroutine may call it.
func (s *Slots) Close() {
	if s.closed.CompareAndSwap(false, true) {
		close(s.done)
	}
}

// Waiting is the number of goroutines that wait right now and for whom no slot is
// under way.
func (s *Slots) Waiting() int { return int(s.waiting.Load()) }

// Cap is the number of slots, free or not.
func (s *Slots) Cap() int { return s.list.Cap() }
