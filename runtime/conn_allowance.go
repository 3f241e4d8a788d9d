package runtime

import "sync/atomic"

// allowance counts the messages that this end may send now: the credits that it holds.
//
//	(peer) ──restore──> free ──take──> in use, until the peer grants them again
//
// Any goroutine may call the methods; they do not block or allocate.
type allowance struct {
	// free is the number of free credits. Goroutines that send take some, and give them back if the
	// message was not posted; the holder adds those that the peer grants. After close it is far below 0.
	// It publishes nothing.
	free atomic.Int64
	most int64 // the most credits that the peer grants; immutable
	// short is set when the last free credit is taken. The goroutine that sends the next message clears it,
	// and tells the peer (proto.Frame.More). That is usually the goroutine that took the credit.
	short atomic.Bool
}

// allowanceOver is what close subtracts from free.
const allowanceOver = 1 << 40

// newAllowance returns an allowance of n credits. The peer grants up to most at one time.
func newAllowance(n, most int) *allowance {
	a := &allowance{most: int64(most)}
	a.free.Store(int64(n))
	return a
}

// take takes up to n free credits, and returns their number. If it takes the last, the peer will be told.
func (a *allowance) take(n int) int {
	for {
		free := a.free.Load()
		k := min(int64(n), free)
		if k <= 0 {
			return 0
		}
		if a.free.CompareAndSwap(free, free-k) {
			if k == free && !a.short.Load() {
				a.short.Store(true)
			}
			return int(k)
		}
	}
}

// restore adds n credits. It returns false, and adds none, if there are then more than the peer grants at
// most. After close it adds none.
func (a *allowance) restore(n uint32) bool {
	for {
		free := a.free.Load()
		if max(free, 0)+int64(n) > a.most {
			return false
		}
		if free < 0 { // otherwise a peer could grant until free is above 0 again
			return true
		}
		if a.free.CompareAndSwap(free, free+int64(n)) {
			return true
		}
	}
}

// close makes take return 0 from now on.
func (a *allowance) close() { a.free.Add(-allowanceOver) }

// available returns the number of free credits.
func (a *allowance) available() int { return int(max(a.free.Load(), 0)) }

// wanted clears short and reports whether it was set.
func (a *allowance) wanted() bool { return a.short.Load() && a.short.CompareAndSwap(true, false) }
