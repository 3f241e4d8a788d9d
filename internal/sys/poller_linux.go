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

// Portable reports whether this build avoids Linux system calls.
const Portable = false

// maxEvents is the largest number of events from one epoll_wait. The others stay ready, and epoll
// rotates its list, so no source starves.
const maxEvents = 64

// longAgo is the deadline that wakes: any time in the past works.
var longAgo = time.Unix(1, 0)

// Poller is a set of sources that one goroutine at a time sleeps on.
//
// The goroutine is parked in Go's own poller, on the descriptor of an epoll set of ours. Three
// things make it runnable:
//
//   - A source with a descriptor. These are level-triggered in our set. Go's
//     poller watches the set edge-triggered, and an edge comes whenever anything
//     is added to its ready list; so before it parks, the goroutine must check
//     that the set is empty. The function poll is that check, and Go repeats it
//     after each edge.
//   - The deadline, as the read deadline of the descriptor.
//   - A Wake, also from a source that announces itself: it moves the read
//     deadline into the past. That readies the goroutine at once, on the
//     processor of the caller. (An eventfd in the set would also work, but costs a
//     system call and the whole way through the kernel, and is noticed only when
//     some processor has nothing else to run.)
//
// The wake-up, from Wake to Wait:
//
//	quiet --Wake: rung = true, then deadline = longAgo--> rung --Wake: -->rung
//	rung --Wait: rung = false, stale = true, return--> quiet
//
// Wait may overwrite a longAgo with its own deadline, but it reads rung after that and before it
// parks. A longAgo may also come late, after its wake-up was handled: the next Wait then fails to
// sleep, finds rung false and its time not reached, sets its deadline again and continues.
type Poller struct {
	ep  *os.File // owns the epoll descriptor, which only Close closes
	raw syscall.RawConn

	// wakePending is a pending wake-up: set by Wake, after its caller published the reason, and cleared
	// by Wait before it checks the sources.
	wakePending atomic.Bool
	// closed is set by the first Close; read by all.
	closed atomic.Bool
	// fds is the number of sources in the epoll set. Incremented by Attach before it adds and
	// decremented by Detach after it removed; read by Wait, which saves a system call if there is
	// none.
	fds atomic.Int32

	mu       sync.Mutex // guards attached and ctl; not taken by Wait and Wake
	attached map[uint32]attachment
	ctl      ctl

	// The following fields belong to the goroutine in Wait.
	marks  markSet
	poll   func(fd uintptr) bool // look, in the form for Go's poller
	once   func(fd uintptr)      // look, in the form for Control
	keys   []uint32              // Wait's argument
	n      int                   // keys found
	found  bool                  // something was found: keys, a wake-up, or an error
	err    error
	last   time.Time // the deadline that Wait set last
	stale  bool      // a Wake may have changed it since
	events [maxEvents]unix.EpollEvent
}

// NewPoller makes an empty poller. It holds a descriptor until Close.
//
// Implements: epoll_create1(2).
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
	p.ctl.call = p.ctl.do
	// A file that Go's poller did not accept has no deadlines: check now.
	if err := p.ep.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(fmt.Errorf("sys: epoll set in Go's poller: %w", err), p.ep.Close())
	}
	if p.raw, err = p.ep.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("sys: epoll set: %w", err), p.ep.Close())
	}
	return p, nil
}

// control calls epoll_ctl. p.mu is held.
func (p *Poller) control(op, fd int, ev unix.EpollEvent) error {
	c := &p.ctl
	c.op, c.fd, c.ev = op, fd, ev
	switch err := p.raw.Control(c.call); {
	case err != nil:
		return ErrPollerClosed
	case c.err != nil:
		return fmt.Errorf("sys: epoll control of descriptor %d: %w", fd, c.err)
	}
	return nil
}

// ctl is the arguments and the result of an epoll_ctl.
type ctl struct {
	op, fd int
	ev     unix.EpollEvent
	err    error
	call   func(ep uintptr) // c.do, allocated once
}

func (c *ctl) do(ep uintptr) { c.err = unix.EpollCtl(int(ep), c.op, c.fd, &c.ev) }

// Attach adds a source under a key that Wait reports. The source stays the caller's. A descriptor
// may be attached once. Any goroutine may call it, also during a Wait; it enters the kernel.
//
// Errors: [ErrAttached], [ErrPollerClosed], or the kernel's.
//
// Implements: epoll_ctl(2), EPOLL_CTL_ADD.
func (p *Poller) Attach(s Source, key uint32) error { return p.attach(s, key, unix.EPOLLIN) }

// AttachOnce is Attach for a source whose key Wait reports one time after each Rearm. The source begins
// unarmed. While it is unarmed its events do not wake the waiter, and other goroutines may take them. A
// source that announces its events is reported for each announcement.
//
// Implements: epoll_ctl(2), EPOLLONESHOT.
func (p *Poller) AttachOnce(s Source, key uint32) error { return p.attach(s, key, unix.EPOLLONESHOT) }

// Rearm has Wait report the source with that key once more, at once if there is something to take. Any
// goroutine may call it; it enters the kernel.
//
// Errors: [ErrNotAttached], [ErrPollerClosed], or the kernel's.
//
// Implements: epoll_ctl(2), EPOLL_CTL_MOD.
func (p *Poller) Rearm(key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.attachmentLocked(key)
	if err != nil || a.mark != nil {
		return err
	}
	return p.control(unix.EPOLL_CTL_MOD, a.fd, unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(key)})
}

func (p *Poller) attach(s Source, key, events uint32) error {
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
		if a.fd = s.FD(); a.fd >= 0 {
			a.silence()
			a.mark = nil
			p.fds.Add(1)
			if err := p.control(unix.EPOLL_CTL_ADD, a.fd, unix.EpollEvent{Events: events, Fd: int32(key)}); err != nil {
				p.fds.Add(-1)
				return err
			}
		} else {
			p.announce(a.mark)
		}
	}
	p.attached[key] = a
	return nil
}

// Detach removes the source with that key. Call it before the source closes its descriptor. A
// Wait that returns at the same time may still report the key. Any goroutine may call it; it
// enters the kernel.
//
// Errors: [ErrNotAttached], [ErrPollerClosed], or the kernel's; the key is free in any case.
//
// Implements: epoll_ctl(2), EPOLL_CTL_DEL.
func (p *Poller) Detach(key uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.attachmentLocked(key)
	if err != nil {
		return err
	}
	delete(p.attached, key)
	if a.mark != nil {
		a.silence()
		return nil
	}
	err = p.control(unix.EPOLL_CTL_DEL, a.fd, unix.EpollEvent{})
	p.fds.Add(-1)
	return err
}

// Wake makes the current Wait, or the next one, return. The caller must have published the reason
// by an atomic operation or under a lock. Any goroutine may call it, also after Close, when it
// has no effect. It does not block or allocate; while an earlier wake-up is pending it costs one
// load.
func (p *Poller) Wake() {
	if p.wakePending.Load() || p.wakePending.Swap(true) {
		return
	}
	_ = p.ep.SetReadDeadline(longAgo) // fails only once closed
}

// Wait parks the calling goroutine until a source is ready, Wake is called, or the deadline
// passes (zero: never), and fills keys with the sources that are ready. It returns at once if
// something is due already. n == 0 without an error means a Wake or the deadline, and may occur
// at any time. With a past deadline it checks without sleeping. One goroutine at a time may call
// it. It holds keys until it returns and allocates nothing.
//
// Errors: [ErrPollerClosed], [ErrNoKeys], or the kernel's.
//
// Keys should have room for all sources: with less, sources that announce themselves without end
// may starve those with descriptors.
//
// Implements: epoll_wait(2), through Go's poller.
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
	for {
		past := !deadline.IsZero() && !time.Now().Before(deadline)
		if past || p.stale || deadline != p.last {
			// Check first: a deadline is set only before sleeping. A deadline that has passed
			// would make Read fail before it checks.
			if p.fds.Load() == 0 {
				p.look(-1)
			} else if err := p.raw.Control(p.once); err != nil {
				return err
			}
			if p.found || past {
				return nil
			}
			if err := p.ep.SetReadDeadline(deadline); err != nil {
				return err
			}
			p.last, p.stale = deadline, false
		}
		err := p.raw.Read(p.poll)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		p.stale = true // a wake-up, an old wake-up, or the time: the next look decides
	}
}

// look collects the ready sources without sleeping.
func (p *Poller) look(ep int) {
	// rung before the marks: a source sets its mark first and wakes then, so the mark of a
	// wake-up that is cleared here is seen below.
	if p.wakePending.Load() && p.wakePending.Swap(false) {
		p.found, p.stale = true, true
	}
	if p.n = p.marks.take(p.keys); p.n > 0 {
		p.found = true
	}
	room := min(len(p.keys)-p.n, maxEvents)
	if room == 0 || p.fds.Load() == 0 || ep < 0 {
		return
	}
	got, err := unix.EpollWait(ep, p.events[:room], 0)
	if err != nil {
		if err != unix.EINTR { // impossible without a timeout; the caller retries
			p.err = fmt.Errorf("sys: epoll wait: %w", err)
		}
		p.found = true
		return
	}
	for i := range p.events[:got] {
		p.found = true
		p.keys[p.n] = uint32(p.events[i].Fd)
		p.n++
	}
}

// Close ends the poller: a running Wait returns [ErrPollerClosed], and sources are detached but
// not closed. It waits until that Wait has returned, and is idempotent. Any goroutine may call
// it.
func (p *Poller) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	p.mu.Lock()
	for _, a := range p.attached {
		if a.mark != nil {
			a.silence()
		}
	}
	clear(p.attached)
	p.mu.Unlock()
	return p.ep.Close()
}
