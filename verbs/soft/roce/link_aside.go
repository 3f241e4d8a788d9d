package roce

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// Answers to addresses that are not proven leave by a socket of their own, which only sends: the aside of a main
// socket. Their requests may be forged. Datagrams to an unused address of the machine's network stay in the send buffer
// for seconds, while the system looks for the address. Without the aside, 56 such requests a second took the
// send buffer of the main socket from all that have no path socket: their connections failed.
//
//	                          proven ───> main socket, or that of the path
//	a packet of the device ──┤
//	                          stranger ─> aside ── full ──> lost, at once
//	                                        │
//	                                        └── open for asideTime, and full: the watching goroutine opens another
//
// A closed socket keeps what it has sent, until the system gives up. So the next one is empty, and honest strangers get
// answers through a flood, too; and the system keeps the buffers of the last 3 s.

// asideTime is how long a full aside stays before another takes its place. A send buffer of 208 KiB has room for 167
// answers, so 3,300 answers to unused addresses leave in a second, and the system keeps 60 buffers
// of them for each main socket.
const asideTime = 50 * time.Millisecond

// asideLocked opens the aside of a main socket, in place of the one that it has. If the system refuses, the main socket
// keeps what it has: without an aside, it serves strangers, too. l.mu is held.
func (l *Link) asideLocked(main *End) {
	s, ok := main.sock.(*udp.Socket)
	if !ok {
		return
	}
	opt := udp.Options{Only6: main.is6}
	var own *udp.Socket
	var err error
	if l.far {
		own, err = s.Aside(opt)
	} else { // the source port of RoCEv2 is free
		own, err = udp.Listen(netip.AddrPortFrom(main.sock.Local().Addr(), 0), opt)
	}
	if err != nil {
		l.up.Exclusive(func() {
			if e := main.aside; e != nil {
				e.opened = l.up.Now() // not again before asideTime
			}
		})
		return
	}
	l.useAside(main, own)
}

// useAside has a main socket send answers to strangers by own. l.mu is held.
func (l *Link) useAside(main *End, own socket) {
	e := l.newEnd(own, main.is6)
	e.main = main
	l.up.Exclusive(func() {
		e.opened = l.up.Now()
		l.dropAside(main)
		main.aside = e
		if l.far {
			l.receive(e, false) // what it took from peers of main before it was connected; no more comes
		}
	})
}

// dropAside closes the aside of a main socket, if it has one. The caller has the link's token.
func (l *Link) dropAside(main *End) {
	if e := main.aside; e != nil {
		l.tx.forget(e)
		main.aside = nil
		_ = e.sock.Close() // a socket without users closes without an error
	}
}

// isAside reports whether e is the aside of its main socket.
func (e *End) isAside() bool { return e.main != nil && e.main.aside == e }

// asideFull handles a full send buffer of an aside. Runner only.
func (l *Link) asideFull(e *End) {
	if l.now >= e.opened+asideTime && !e.main.renew.Swap(true) {
		l.poll.Wake() // there is a socket, so there is a poller
	}
}

// renewAsides opens the asides that were asked for. It reports whether some must wait, as connectAsked does. The
// watching goroutine calls it.
func (l *Link) renewAsides() (wait bool) {
	for _, e := range *l.ends.Load() {
		if !e.renew.Load() {
			continue
		}
		if !l.mu.TryLock() {
			return true
		}
		if e.renew.Store(false); !l.closed && e.refs.Load() > 0 {
			l.asideLocked(e)
		}
		l.mu.Unlock()
	}
	return false
}
