package turn

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// wakeKeys is the maximum number of event sources that one call of Wait reports. The next call
// reports the others.
const wakeKeys = 64

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// PollerSleeper is a [Sleeper] that sleeps in a [sys.Poller]. A key is the number of an event
// source attached to the poller. The [Work] must call Ready in NeedsLoop and Take in RunLoopTasks.
type PollerSleeper struct {
	*sys.Poller // Poller.Wake implements Sleeper
	// keys holds the keys of sources with events. Wait writes them only if no keys are stored for
	// Take. Take returns a part of the array. Only the loop calls Wait, Take and TakeOnly.
	keys [wakeKeys]uint32
	// ready is the number of keys that are stored for Take. Wait sets it, and Take and TakeOnly clear
	// it. Any goroutine reads it. It publishes no other data, because only the loop uses keys.
	ready atomic.Int32
	// err is the poller's error, if Wait has returned WakeClosed. The loop writes it. Err
	// reads it after Loop has returned.
	err error
}

// NewPollerSleeper returns a sleeper that sleeps in p. The caller owns p. Closing p ends the loop.
// Only the loop may wait in p.
func NewPollerSleeper(p *sys.Poller) *PollerSleeper { return &PollerSleeper{Poller: p} }

// Wait implements [Sleeper]. It reports WakeEvent if keys are stored for Take, WakeTimer if the
// deadline has passed, and WakeClosed if the poller returns an error. If keys of an earlier Wait
// are still stored, Wait returns WakeEvent at once.
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

// Take returns the keys of the sources that woke the loop. The slice is valid until the next call
// of Wait or Poll. Only the loop calls Take, in RunLoopTasks. The loop must then drain each of
// these sources.
func (s *PollerSleeper) Take() []uint32 {
	n := s.ready.Load()
	s.ready.Store(0)
	return s.keys[:n]
}

// TakeOnly is Take if no other key than key is stored. It returns false if there are others, or none. Only the loop
// calls TakeOnly, between two calls of Wait or Poll.
func (s *PollerSleeper) TakeOnly(key uint32) bool {
	if s.ready.Load() != 1 || s.keys[0] != key {
		return false
	}
	s.ready.Store(0)
	return true
}

// Err returns the error that ended the sleeper, or nil if its poller was closed. Call Err when Loop
// has returned.
func (s *PollerSleeper) Err() error {
	if errors.Is(s.err, sys.ErrPollerClosed) {
		return nil
	}
	return s.err
}
