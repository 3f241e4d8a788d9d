package roce

import (
	"runtime"
	"time"
)

// Goroutines that poll completion queues receive while they poll. The watching goroutine does so
// otherwise, woken by the first datagram; while others poll a socket is not armed for it, or each
// datagram would wake a thread that finds nothing.
//
//	             Arm: a poller polls no more for now
//	   ┌────────────────────────────────────────────────┐
//	   │                                                v
//	unarmed <───── a datagram wakes the watcher ────── armed
//	   │  ^                                             ^
//	   │  └─ polled in the last pollTime: waits for it  │
//	   └──────── not polled: the watcher arms ──────────┘
//
// A poller that is about to sleep, or has a result and goes on with something else, calls Arm. If it does not, because
// its queues are armed already, the watcher arms within pollTime. Unlike at a completion queue it need not look again: a
// datagram that is in the socket when it is armed, or comes later, wakes the watcher. (In the portable build arming
// does nothing, and each datagram wakes it.)
//
// Pollers look only at hot sockets, so that one without traffic costs them nothing. The watcher arms
// the others always. A socket that brings only junk (datagrams that are not packets) waits for pollTime first.

const (
	// pollTime is how long the watching goroutine leaves a socket to a goroutine that has polled. While
	// others poll it wakes up once in that time.
	pollTime = time.Millisecond
	// hotTimes is how many times pollTime a socket without traffic stays hot.
	hotTimes = 20
)

// watch is the watching goroutine. It ends when the poller is closed.
func (l *Link) watch() {
	defer close(l.ended)
	var keys [8]uint32
	for {
		var until time.Time
		polled := l.polled.Swap(false)
		// Sockets without buffers to receive into would wake this goroutine again and again.
		starving, waits := l.starving.Load(), l.connectAsked()
		renews := l.renewAsides()
		if starving || l.armIdle(polled) || waits || renews {
			until = time.Now().Add(pollTime)
		}
		n, err := l.poll.Wait(until, keys[:])
		if err != nil {
			return
		}
		if n > 0 {
			l.woken(keys[:n])
			// Not Kick: while another goroutine runs the link, perhaps without a processor, the sockets would
			// stay ready, and arming them would wake this one again at once.
			l.attending.Store(true)
			l.up.Exclusive(func() {})
			runtime.Gosched() // those that the device has woken up
			l.attending.Store(false)
			l.after()
		}
	}
}

// armIdle arms the sockets, except those that pollers look at. It reports whether there are such.
func (l *Link) armIdle(polled bool) (left bool) {
	for _, e := range *l.ends.Load() {
		if e.busy.Load() && e.busy.Swap(false) {
			e.quiet = 0
		} else if e.quiet++; e.quiet == hotTimes {
			e.hot.Store(false)
		}
		if polled && e.hot.Load() || e.flooded.Load() && e.flooded.Swap(false) {
			left = true
			continue
		}
		e.arm()
	}
	return left
}

// woken notes the sockets with these keys.
func (l *Link) woken(keys []uint32) {
	for _, e := range *l.ends.Load() {
		for _, k := range keys {
			if e.key == k {
				e.armed.Store(false) // before the link runs: a later Arm is for later datagrams
				e.ready.Store(true)
			}
		}
	}
}

func (e *End) arm() {
	if !e.armed.Load() && e.armed.CompareAndSwap(false, true) {
		_ = e.link.poll.Rearm(e.key) // fails only once the socket is closed
	}
}

// passed notes that datagrams passed. Runner only.
func (e *End) passed() {
	if !e.busy.Load() {
		e.busy.Store(true)
	}
	if !e.hot.Load() {
		e.hot.Store(true)
	}
}

// Attending reports whether the link's goroutine has received and will call the function after. Any
// goroutine; it does not block.
func (l *Link) Attending() bool { return l.attending.Load() }

// Arm has the next datagram, or one that is there, wake the watching goroutine. A goroutine that has called Poll calls
// Arm before it sleeps or does something else. Any goroutine; it does not block.
func (l *Link) Arm() {
	for _, e := range *l.ends.Load() {
		if e.hot.Load() {
			l.polled.Store(false)
			e.arm()
		}
	}
}

// Hot reports whether there is a hot socket. Any goroutine; it does not block.
func (l *Link) Hot() bool {
	for _, e := range *l.ends.Load() {
		if e.hot.Load() {
			return true
		}
	}
	return false
}

// Poll receives the datagrams in hot sockets, on this goroutine unless another one runs the link. The
// argument again means that the caller will soon call Poll or Arm. It reports whether there is a hot
// socket. Any goroutine, but not within a run; it does not block.
func (l *Link) Poll(again bool) bool {
	for _, e := range *l.ends.Load() {
		if e.hot.Load() {
			if again && !l.polled.Load() {
				l.polled.Store(true)
			}
			l.wanted.Store(true)
			if l.up.Enter() {
				l.up.Run()
			}
			return true
		}
	}
	return false
}
