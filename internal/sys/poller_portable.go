//go:build !linux || portable

package sys

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Portable reports whether this build avoids Linux system calls.
const Portable = true

// Poller is a set of sources that one goroutine at a time sleeps on. Here sources announce
// themselves: see [Source].
//
// The waiter sleeps on the channel wake. Wake sets rung and then sends on the channel, unless a
// value is there. Wait clears rung and returns if it was set, and otherwise receives and checks
// again. A value without rung is possible (the waiter was faster) and only costs a second check;
// rung without a value is not, except between the two steps of Wake.
type Poller struct {
	// wakePending is a pending wake-up: set by Wake and cleared by Wait. Clearing it acquires the writes
	// that the caller of Wake published.
	wakePending atomic.Bool
	// closed is set by the first Close; read by all.
	closed atomic.Bool

	wake chan struct{} // capacity 1
	done chan struct{} // closed by Close

	mu       sync.Mutex // guards attached; not taken by Wait and Wake
	attached map[uint32]attachment

	// The following fields belong to the goroutine in Wait.
	marks markSet
	timer *time.Timer // reused; stopped outside of Wait
	armed bool        // the timer runs
}

// NewPoller makes an empty poller.
func NewPoller() (*Poller, error) {
	p := &Poller{
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		attached: map[uint32]attachment{},
		timer:    time.NewTimer(time.Hour),
	}
	p.timer.Stop()
	return p, nil
}

// Attach adds a source under a key that Wait reports. The source stays the caller's. A source may
// be attached once. Any goroutine may call it, also during a Wait; it does not block.
//
// Errors: [ErrAttached], [ErrPollerClosed], and [ErrNoFD] for a source that does not announce
// itself but has a descriptor.
func (p *Poller) Attach(s Source, key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return ErrPollerClosed
	}
	if _, ok := p.attached[key]; ok {
		return fmt.Errorf("%w: %d", ErrAttached, key)
	}
	a := attachment{source: s, mark: p.listen(s, key)}
	if !a.mark.announces.Load() {
		if fd := s.FD(); fd >= 0 {
			a.silence()
			return fmt.Errorf("%w: descriptor %d in the portable build", ErrNoFD, fd)
		}
		p.announce(a.mark)
	}
	p.attached[key] = a
	return nil
}

// AttachOnce is Attach: here every source announces its events, and is reported whenever it does.
func (p *Poller) AttachOnce(s Source, key uint32) error { return p.Attach(s, key) }

// Rearm does nothing here; see AttachOnce. Errors: [ErrNotAttached], [ErrPollerClosed].
func (p *Poller) Rearm(key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.attachmentLocked(key)
	return err
}

// Detach removes the source with that key. A Wait that returns at the same time may still report
// the key. Any goroutine may call it; it does not block.
//
// Errors: [ErrNotAttached], [ErrPollerClosed].
func (p *Poller) Detach(key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.attachmentLocked(key)
	if err != nil {
		return err
	}
	delete(p.attached, key)
	a.silence()
	return nil
}

// Wake makes the current Wait, or the next one, return. Any goroutine may call it, also after
// Close, when it has no effect. It does not block or allocate; while an earlier wake-up is
// pending it costs one load.
func (p *Poller) Wake() {
	if p.wakePending.Load() || p.wakePending.Swap(true) {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Wait parks the calling goroutine until a source is ready, Wake is called, or the deadline
// passes (zero: never), and fills keys with the sources that are ready. It returns at once if
// something is due already. n == 0 without an error means a Wake or the deadline, and may occur
// at any time. With a past deadline it checks without sleeping. One goroutine at a time may call
// it. It allocates nothing.
//
// Errors: [ErrPollerClosed], [ErrNoKeys].
func (p *Poller) Wait(deadline time.Time, keys []uint32) (n int, err error) {
	if len(keys) == 0 {
		return 0, ErrNoKeys
	}
	n, err = p.wait(deadline, keys)
	if p.armed {
		p.timer.Stop() // since Go 1.23 a stopped timer leaves no value behind
		p.armed = false
	}
	return n, err
}

func (p *Poller) wait(deadline time.Time, keys []uint32) (n int, err error) {
	var expired <-chan time.Time
	for {
		if p.closed.Load() {
			return 0, ErrPollerClosed
		}
		// rung before the marks: a source sets its mark first and wakes then, so the mark of a
		// wake-up that is cleared here is seen below.
		rung := p.wakePending.Load() && p.wakePending.Swap(false)
		if n = p.marks.take(keys); n > 0 || rung {
			return n, nil
		}
		if !deadline.IsZero() && !p.armed {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, nil
			}
			p.timer.Reset(left)
			p.armed, expired = true, p.timer.C
		}
		select {
		case <-p.wake:
		case <-expired:
			return 0, nil
		case <-p.done:
		}
	}
}

// Close ends the poller: a running Wait returns [ErrPollerClosed], and sources are detached but
// not closed. It is idempotent, does not block, and any goroutine may call it.
func (p *Poller) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.attached {
		a.silence()
	}
	clear(p.attached)
	close(p.done)
	return nil
}
