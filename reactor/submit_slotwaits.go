package reactor

import (
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"
)

// slotWaits counts the slot waits of all send queues. Many submitters count at the same time,
// without the turn, so the counters are atomics. Their cost is small next to that of parking a
// goroutine.
type slotWaits struct {
	// Submitters add to each counter when their wait is over; Stats reads them; they publish
	// nothing. The buckets in took are those of a Histogram of microseconds; waited is the sum of
	// all waits, longest the longest wait. took must be the first field: it aligns the others on
	// 32-bit machines.
	took    [Buckets]atomic.Uint64
	waited  uatomic.Duration
	longest uatomic.Duration
}

// add counts one wait.
func (s *slotWaits) add(d time.Duration) {
	d = max(d, 0) // Config.Now may stand still
	s.took[bucketOf(uint64(d/time.Microsecond))].Add(1)
	s.waited.Add(d)
	for {
		most := s.longest.Load()
		if d <= most || s.longest.CompareAndSwap(most, d) {
			return
		}
	}
}

// snapshot writes the counters to st. A wait that ends meanwhile may be in some of the counters
// only.
func (s *slotWaits) snapshot(st *Stats) {
	for i := range s.took {
		st.SlotWaits[i] = s.took[i].Load()
	}
	st.SlotWaitTime, st.MaxSlotWait = s.waited.Load(), s.longest.Load()
}

// clock returns the current time on the timers' clock. Any goroutine may call it. If Config.Now is
// the machine's clock, the function clock reads only the monotonic time, which takes half as long
// as time.Now.
func (r *Reactor) clock() time.Duration {
	if r.cfg.real {
		return time.Since(r.timers.base)
	}
	return r.cfg.Now().Sub(r.timers.base)
}
