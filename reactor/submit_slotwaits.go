package reactor

import (
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"
)

// slotWaits counts the slot waits of all send queues. Submitters wait in large numbers and
// without the turn, so the counters are atomics. A slot wait parks a goroutine, which costs
// more than counting it.
type slotWaits struct {
	// Submitters add to each counter when their wait is over; Stats reads them; they publish
	// nothing. took counts waits by microseconds, as Histogram; waited is the total time,
	// longest that of one wait. took goes first: it aligns the others on 32 bits.
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

// snapshot writes the counters to st. A wait that ends meanwhile may be in part of them.
func (s *slotWaits) snapshot(st *Stats) {
	for i := range s.took {
		st.SlotWaits[i] = s.took[i].Load()
	}
	st.SlotWaitTime, st.MaxSlotWait = s.waited.Load(), s.longest.Load()
}

// clock returns the current time on the timers' clock. Any goroutine may call it. With the
// machine's clock it reads only the monotonic time, which takes half as long as time.Now.
func (r *Reactor) clock() time.Duration {
	if r.cfg.real {
		return time.Since(r.timers.base)
	}
	return r.cfg.Now().Sub(r.timers.base)
}
