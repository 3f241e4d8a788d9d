package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Listed says of something with work that it is in an [Inbox] of those with work, or
// about to be, so that it gets in once for many pieces of work:
//
//	            producer: Enter is true, then it pushes
//	not listed ────────────────────────────────────────> listed
//	     ^                                                 │
//	     └── consumer: has taken it, and read its link; ───┘
//	         then Leave, and only then takes the work
//
// Work is added before Enter. If Enter is false the work is taken all the same: somebody
// who found it not listed is going to push, or the consumer has not left it yet, and
// takes the work after that. The zero value is not listed.
type Listed struct {
	// is: set by the producer that will push, cleared by the consumer, read by
	// producers. Set, it publishes nothing (the push does). The consumer's store comes
	// before its look at the work, and a producer's work before its load: one of them
	// sees the other.
	is atomic.Bool
}

// Enter reports whether it was not listed: then the caller pushes it. Any goroutine may
// call it; it does not block or allocate.
func (l *Listed) Enter() bool {
	model.Yield("enter")
	if l.is.Load() { // a load is far cheaper than a swap
		return false
	}
	model.Yield("enter.swap")
	return l.is.CompareAndSwap(false, true)
}

// Leave has it no longer listed. Only the consumer may call it, who has taken it.
func (l *Listed) Leave() {
	model.Yield("leave")
	l.is.Store(false)
}
