package turn

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// wakeKeys is how many event sources one Wait reports. The next Wait reports the rest.
const wakeKeys = 64

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// PollerSleeper is a [Sleeper] that sleeps in a [sys.Poller]. A key is the number of an event
// source attached to the poller. The [Work] must call Ready in NeedsLoop and Take in RunLoopTasks.
type PollerSleeper struct {
	*sys.Poller // its Wake implements Sleeper
	// keys is written by Wait while ready is zero, and read by Take. The loop calls both.
	keys [wakeKeys]uint32
	// ready is how many keys are stored for Take. Set by Wait, cleared by Take; read by any
	// goroutine; publishes nothing (only the loop uses keys).
	ready atomic.Int32
	// err is the error because of which Wait returned WakeClosed; written by the loop, read after
	// Loop.
	err error
}

// NewPollerSleeper returns a sleeper on p. The caller keeps p and closes it, which ends the loop.
// No other goroutine may Wait on p.
func NewPollerSleeper(p *sys.Poller) *PollerSleeper { return &PollerSleeper{Poller: p} }

// Wait implements [Sleeper]. It reports WakeEvent if keys are stored for Take, WakeTimer if the
// deadline has passed, and WakeClosed if the poller returns an error. If Take has not taken the
// keys of an earlier Wait, it returns WakeEvent at once.
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

// Ready reports whether keys are stored for Take. Any goroutine may call it.
func (s *PollerSleeper) Ready() bool { return s.ready.Load() != 0 }

// Take returns the keys of the sources that woke the loop. The slice is valid until the loop sleeps
// again. Only the loop calls Take, in RunLoopTasks. It must then drain each of these sources.
func (s *PollerSleeper) Take() []uint32 {
	n := s.ready.Load()
	s.ready.Store(0)
	return s.keys[:n]
}

// Err returns why the sleeper ended, or nil if its poller was closed. Call it after Loop.
func (s *PollerSleeper) Err() error {
	if errors.Is(s.err, sys.ErrPollerClosed) {
		return nil
	}
	return s.err
}
