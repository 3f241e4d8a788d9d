//go:build linux && !portable

package sys

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Portable tells whether this build does without Linux calls.
const Portable = false

// maxEvents is how many events one look at the epoll set brings. What does not
// fit stays ready, and epoll turns its list round, so nobody starves.
const maxEvents = 64

// bellMark tells the bell from a source in the user data of an epoll event.
const bellMark = 1

// Poller is a set of sources that one goroutine at a time sleeps on.
//
// Two pollers are nested. The sources and the bell stand level-triggered in an
// epoll set of ours. The descriptor of that set is watched, edge-triggered, by
// the poller of the Go runtime, which parks and wakes the goroutine. An edge
// comes whenever anything is added to the ready list of our set, so what the
// goroutine owes is to look until the set shows nothing before it parks: the
// function poll does, and Go repeats it after each wake-up.
//
// The bell, from Ring to Wait:
//
//	quiet --Ring: rung=true, write eventfd--> rung --Ring: nothing--> rung
//	rung --Wait: read eventfd, then rung=false, then return--> quiet
//
// In this order a Ring that found rung set happened before Wait returned, and
// the waiter sees what was published before it. The other order would leave
// rung set over an empty eventfd, and every later Ring unheard.
type Poller struct {
	ep   *os.File // owns the epoll descriptor: nobody else closes it
	raw  syscall.RawConn
	bell *Event

	// rung is set by Ring and cleared by Wait as drawn above.
	rung atomic.Bool
	// closed is set by the first Close; read by all.
	closed atomic.Bool

	mu       sync.Mutex // guards attached; not taken by Wait and Ring
	attached map[uint32]attachment

	// What follows belongs to the goroutine in Wait.
	marks  markSet
	poll   func(fd uintptr) bool // look, as the Go poller wants it
	once   func(fd uintptr)      // look, as Control wants it
	keys   []uint32              // Wait's argument
	n      int                   // keys found
	found  bool                  // something was found: keys, the bell, or an error
	err    error
	last   time.Time // the deadline that is set on ep
	events [maxEvents]unix.EpollEvent
}

type attachment struct {
	source Source
	fd     int   // -1: it notifies
	mark   *mark // for one that notifies
}

// NewPoller makes an empty poller. It holds two descriptors until Close.
//
// Implements: epoll_create1(2), eventfd(2).
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("sys: epoll set: %w", err)
	}
	// Non-blocking is what makes os.NewFile give it to Go's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("sys: epoll set: %w", err), unix.Close(fd))
	}
	p := &Poller{ep: os.NewFile(uintptr(fd), "epoll"), attached: map[uint32]attachment{}}
	p.poll = func(fd uintptr) bool { p.look(int(fd)); return p.found }
	p.once = func(fd uintptr) { p.look(int(fd)) }
	if err := p.init(); err != nil {
		return nil, errors.Join(err, p.ep.Close())
	}
	return p, nil
}

func (p *Poller) init() error {
	// A file that Go's poller did not take has no deadlines, and its Wait would
	// return an error instead of parking: find out now.
	if err := p.ep.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("sys: epoll set in Go's poller: %w", err)
	}
	raw, err := p.ep.SyscallConn()
	if err != nil {
		return fmt.Errorf("sys: epoll set: %w", err)
	}
	p.raw = raw
	if p.bell, err = NewEvent(); err != nil {
		return err
	}
	if err := p.control(unix.EPOLL_CTL_ADD, p.bell.FD(), unix.EpollEvent{Events: unix.EPOLLIN, Pad: bellMark}); err != nil {
		return errors.Join(err, p.bell.Close())
	}
	return nil
}

func (p *Poller) control(op, fd int, ev unix.EpollEvent) error {
	var failed error
	err := p.raw.Control(func(ep uintptr) { failed = unix.EpollCtl(int(ep), op, fd, &ev) })
	switch {
	case err != nil:
		return ErrPollerClosed
	case failed != nil:
		return fmt.Errorf("sys: epoll control of descriptor %d: %w", fd, failed)
	}
	return nil
}

// Attach adds a source under a key that Wait reports. The source stays the
// caller's. A descriptor may be attached once. Any goroutine may call it, also
// while another waits; it enters the kernel.
//
// Errors: [ErrAttached], [ErrPollerClosed], or what the kernel answered.
//
// Implements: epoll_ctl(2), EPOLL_CTL_ADD.
func (p *Poller) Attach(s Source, key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return ErrPollerClosed
	}
	if _, ok := p.attached[key]; ok {
		return fmt.Errorf("%w: %d", ErrAttached, key)
	}
	fd := s.FD()
	if fd >= 0 {
		if err := p.control(unix.EPOLL_CTL_ADD, fd, unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(key)}); err != nil {
			return err
		}
		p.attached[key] = attachment{source: s, fd: fd}
		return nil
	}
	p.attached[key] = attachment{source: s, fd: -1, mark: p.listen(s, key)}
	return nil
}

// Detach takes the source with that key out. Call it before the source closes
// its descriptor. A Wait that returns at the same time may still report the key.
// Any goroutine may call it; it enters the kernel.
//
// Errors: [ErrNotAttached], [ErrPollerClosed], or what the kernel answered; the
// key is free in any case.
//
// Implements: epoll_ctl(2), EPOLL_CTL_DEL.
func (p *Poller) Detach(key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.attached[key]
	switch {
	case p.closed.Load():
		return ErrPollerClosed
	case !ok:
		return fmt.Errorf("%w: %d", ErrNotAttached, key)
	}
	delete(p.attached, key)
	if a.fd < 0 {
		a.silence()
		return nil
	}
	return p.control(unix.EPOLL_CTL_DEL, a.fd, unix.EpollEvent{})
}

// Ring makes the Wait that runs now, or the next one, return. Any goroutine may
// call it, also after Close, when it has no effect. It does not block or
// allocate; while an earlier Ring is unheard it costs one load, otherwise one
// write to an eventfd.
func (p *Poller) Ring() {
	if p.rung.Load() || p.rung.Swap(true) {
		return
	}
	p.bell.Signal()
}

// Wait parks the calling goroutine until a source has something, somebody calls
// Ring, or the deadline passes (zero: never), and fills keys with the sources
// that are ready. It returns at once if something is due already. n == 0
// without an error means a Ring or the deadline, and is allowed at any time.
// A past deadline makes it a look without sleep. One goroutine at a time may be
// in it. It holds keys until it returns and allocates nothing.
//
// Errors: [ErrPollerClosed], [ErrNoKeys], or what the kernel answered.
//
// Implements: epoll_wait(2), by way of Go's poller.
func (p *Poller) Wait(deadline time.Time, keys []uint32) (n int, err error) {
	if len(keys) == 0 {
		return 0, ErrNoKeys
	}
	p.keys, p.n, p.found, p.err = keys, 0, false, nil
	err = p.wait(deadline)
	p.keys = nil
	switch {
	case p.closed.Load():
		return 0, ErrPollerClosed
	case p.err != nil:
		return p.n, p.err
	}
	return p.n, err
}

func (p *Poller) wait(deadline time.Time) error {
	past := !deadline.IsZero() && !time.Now().Before(deadline)
	if past || deadline != p.last {
		// Look first: a deadline is set only if there is need to sleep. And a
		// deadline that has passed would make Read fail before it looks.
		if err := p.raw.Control(p.once); err != nil || p.found || past {
			return err
		}
		if err := p.ep.SetReadDeadline(deadline); err != nil {
			return err
		}
		p.last = deadline
	}
	err := p.raw.Read(p.poll)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// look takes what is ready without sleeping.
func (p *Poller) look(ep int) {
	p.n = p.marks.take(p.keys)
	p.found = p.n > 0
	room := len(p.keys) - p.n
	if room == 0 {
		return
	}
	// One more than fits, for the bell. If that one is a source it stays ready.
	got, err := unix.EpollWait(ep, p.events[:min(room+1, maxEvents)], 0)
	if err != nil {
		if err != unix.EINTR { // cannot be with no time to wait; look again
			p.err = fmt.Errorf("sys: epoll wait: %w", err)
		}
		p.found = true
		return
	}
	for i := range p.events[:got] {
		ev := &p.events[i]
		p.found = true
		if ev.Pad == bellMark {
			p.bell.Drain()
			p.rung.Store(false)
		} else if p.n < len(p.keys) {
			p.keys[p.n] = uint32(ev.Fd)
			p.n++
		}
	}
}

// Close ends the poller: a Wait that runs returns [ErrPollerClosed], and
// sources are let go but not closed. It waits until that Wait has left, and is
// idempotent. Any goroutine may call it.
func (p *Poller) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	p.mu.Lock()
	for _, a := range p.attached {
		if a.fd < 0 {
			a.silence()
		}
	}
	clear(p.attached)
	p.mu.Unlock()
	// The epoll descriptor first: its Close waits for Wait to leave, which may
	// be reading the bell.
	return errors.Join(p.ep.Close(), p.bell.Close())
}
