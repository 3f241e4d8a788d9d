//go:build linux && !portable

package sys

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fdRef owns a descriptor that any goroutine uses and any goroutine may close. The last user
// closes it, so that a late user never writes to a reused descriptor number.
//
//	open(users) --close--> closing(users) --last release--> closed
type fdRef struct {
	fd int // immutable
	// state is the number of users, plus closing once close was called. Changed
	// by acquire (only while open), release and close.
	state atomic.Int64
}

const closing = int64(1) << 62

// acquire begins a use, or reports false once close was called.
func (r *fdRef) acquire() bool {
	for {
		s := r.state.Load()
		if s >= closing {
			return false
		}
		if r.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// release ends a use.
func (r *fdRef) release() {
	if r.state.Add(-1) == closing {
		_ = unix.Close(r.fd) // the error cannot be reported or handled
	}
}

// close refuses further uses, and closes the descriptor when the last one ends.
// It is idempotent.
func (r *fdRef) close() error {
	for {
		s := r.state.Load()
		if s >= closing {
			return nil
		}
		if r.state.CompareAndSwap(s, s+closing) {
			if s == 0 {
				return unix.Close(r.fd)
			}
			return nil
		}
	}
}
