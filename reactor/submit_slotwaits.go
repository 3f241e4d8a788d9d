package reactor

import (
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"
)

// slotWaits counts how often and how long submitters waited for a slot, over all send queues. Many
// submitters count at the same time, without the turn, so the counters are atomics. Their cost is
// small compared with parking a goroutine.
type slotWaits struct {
	// A submitter writes the counters when its wait is over. Stats reads them. They publish no other
	// data.
	//
	// took[i] is bucket i of a Histogram of the waits in microseconds. The array must be the first
	// field: its alignment to 8 bytes also aligns the other fields on 32-bit machines.
	took    [Buckets]atomic.Uint64
	waited  uatomic.Duration // the sum of all waits
	longest uatomic.Duration // the longest wait
}

func (s *slotWaits) add(d time.Duration) {
	d = max(d, 0) // Config.Now may go backwards
	s.took[bucketOf(uint64(d/time.Microsecond))].Add(1)
	s.waited.Add(d)
	for {
		most := s.longest.Load()
		if d <= most || s.longest.CompareAndSwap(most, d) {
			return
		}
	}
}

// snapshot copies the counters to st. A wait that ends meanwhile may be in some of the copied counters
// and not in others.
func (s *slotWaits) snapshot(st *Stats) {
	for i := range s.took {
		st.SlotWaits[i] = s.took[i].Load()
	}
	st.SlotWaitTime, st.MaxSlotWait = s.waited.Load(), s.longest.Load()
}

// clock returns the current time on the timers' clock. Any goroutine may call it. If Config.Now is the
// machine's clock, clock() reads only the monotonic time, which takes half as long as time.Now.
func (r *Reactor) clock() time.Duration {
	if r.cfg.real {
		return time.Since(r.timers.base)
	}
	return r.cfg.Now().Sub(r.timers.base)
}
