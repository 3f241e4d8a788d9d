package turn

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// wakeKeys is how many sources one wake reports. What does not fit is ready at
// the next.
const wakeKeys = 64

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// PollerSleeper makes a [Sleeper] of a poller. Its Work calls Ready in Errands
// and Take in Run.
type PollerSleeper struct {
	*sys.Poller // its Ring implements Sleeper
	// keys: written by Wait while ready is zero; read by Take. Both are called
	// by the loop.
	keys [wakeKeys]uint32
	// ready is how many keys wait for Take. Set by Wait, cleared by Take; read
	// by any holder; publishes nothing (who reads keys wrote them).
	ready atomic.Int32
	// err is why Wait said WakeClosed; written by the loop, read after Loop.
	err error
}

// NewPollerSleeper makes a sleeper of p, which stays the caller's to close:
// closing it ends the loop. Nobody else may Wait on p.
func NewPollerSleeper(p *sys.Poller) *PollerSleeper { return &PollerSleeper{Poller: p} }

// Wait implements [Sleeper]: keys are an event, a deadline that has passed is a
// timer, and an error of the poller closes. While keys wait for Take it does
// not sleep.
func (s *PollerSleeper) Wait(deadline time.Time) (wake WakeReason) {
	if s.ready.Load() != 0 {
		return WakeEvent
	}
	n, err := s.Poller.Wait(deadline, s.keys[:])
	if n > 0 {
		s.ready.Store(int32(n))
		wake |= WakeEvent
	}
	if err != nil {
		s.err = err
		return wake | WakeClosed
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		wake |= WakeTimer
	}
	return wake
}

// Poll implements [Sleeper].
func (s *PollerSleeper) Poll() WakeReason { return s.Wait(longAgo) &^ WakeTimer }

// Ready tells whether keys wait for Take. Any goroutine may ask.
func (s *PollerSleeper) Ready() bool { return s.ready.Load() != 0 }

// Take gives the keys of the sources that woke the loop, valid until the loop
// sleeps again. For Run: the loop's goroutine only. Each source is to be
// drained to empty.
func (s *PollerSleeper) Take() []uint32 {
	n := s.ready.Load()
	s.ready.Store(0)
	return s.keys[:n]
}

// Err is why the sleeper ended; nil if its poller was closed. For after Loop.
func (s *PollerSleeper) Err() error {
	if errors.Is(s.err, sys.ErrPollerClosed) {
		return nil
	}
	return s.err
}
