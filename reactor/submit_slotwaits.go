package reactor

import (
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"
)

// slotWaits count the submitters that found no room in a send queue and waited for it. They
// are many, and wait without the turn: so these are atomics. A stall parks a goroutine,
// which costs more than counting it.
type slotWaits struct {
	// Each is added to by submitters when their wait is over, read by Stats, and
	// publishes nothing. took counts by microseconds, as Histogram; waited is the
	// time of all, longest of one. took goes before them: it aligns them on 32 bits.
	took    [Buckets]atomic.Uint64
	waited  uatomic.Duration
	longest uatomic.Duration
}

// add counts one wait.
func (s *slotWaits) add(d time.Duration) {
	d = max(d, 0) // a clock of the caller's may stand still
	s.took[bucketOf(uint64(d/time.Microsecond))].Add(1)
	s.waited.Add(d)
	for {
		most := s.longest.Load()
		if d <= most || s.longest.CompareAndSwap(most, d) {
			return
		}
	}
}

// snapshot writes what was counted. A wait that ends meanwhile may be in part of it.
func (s *slotWaits) snapshot(st *Stats) {
	for i := range s.took {
		st.SlotWaits[i] = s.took[i].Load()
	}
	st.SlotWaitTime, st.MaxSlotWait = s.waited.Load(), s.longest.Load()
}

// clock is now, on the timers' clock. Any goroutine. On the machine's clock it reads the
// monotonic one alone, which takes half as long as time.Now.
func (r *Reactor) clock() time.Duration {
	if r.cfg.real {
		return time.Since(r.timers.base)
	}
	return r.cfg.Now().Sub(r.timers.base)
}
