package turn

import (
	"runtime"
	"sync/atomic"
)

// A caller that is about to drive may first yield to other goroutines. If other goroutines then
// submit, too, the caller's pass posts the requests of all of them, with one doorbell for each queue.
// Also, passes then run on fewer processors, so the memory that passes touch stays in one cache. If no
// other goroutine submits, the yield is wasted. So callers yield only if several callers have
// recently found the turn held.
//
//	                turn held                 turn held
//	uncontended ──────────────────> suspect ──────────────────> contended
//	  ^                                │                            │
//	  ├─ turn free for suspectCalls ───┘                            │
//	  │  callers in a row                                           │
//	  └─ turn free for contendedCalls callers in a row ─────────────┘
//
// Callers yield only in the state contended. If only one caller finds the turn held, the state does
// not become contended, because the holder may be the loop, which runs a pass now and then.
//
// The yield was measured on the null device (verbs/ibv/nulldev), on two processors. There were 16
// goroutines, and each of them had 8 writes outstanding at a time:
//
//	without the yield   5.3 million writes a second, 340 ns of processor time a write
//	with the yield      7.5 million writes a second, 190 ns of processor time a write
//
// A caller that still finds the turn held after its yield parks at once, because parking costs less
// than a second attempt to take the turn.

// With contendedCalls = 64, the state contended would end too early, because even contending callers
// sometimes find the turn free 64 times in a row. A doorbell then served 8 requests instead of 12.
const contendedCalls, suspectCalls = 1024, 64

// contention holds the state of the diagram, encoded in one number:
//
//	left > 0    contended
//	left < 0    suspect
//	left == 0   uncontended
//
// The absolute value is the number of callers in a row that must still find the turn free until the
// state is uncontended. A caller reads the number before it tries to take the turn, and writes it
// afterwards. The number publishes no other data, and a lost update does no harm.
type contention struct{ left atomic.Int32 }

// yield lets other goroutines run if the state is contended, and reports whether it did.
func (c *contention) yield() bool {
	if c.left.Load() <= 0 {
		return false
	}
	runtime.Gosched()
	return true
}

// note changes the state after a caller has tried to take the turn. If free is true, the turn had no
// holder, and the caller has taken it.
func (c *contention) note(free bool) {
	left := c.left.Load()
	switch {
	case !free && left == 0:
		c.left.Store(-suspectCalls)
	case !free && left != contendedCalls:
		c.left.Store(contendedCalls)
	case free && left > 0:
		c.left.Store(left - 1)
	case free && left < 0:
		c.left.Store(left + 1)
	}
}
