package roce

import (
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// A path between processes that is in use has a socket of its own, connected to the peer, at the port of
// its main socket. It makes a difference twice: what others send, a flood too, does not take the path's
// place in a receive buffer; and the system needs a fifth less time for a small datagram, because it looks
// up no route and passes no addresses.
//
//	             Connect                 the watching goroutine
//	main socket ─────────> path is asked ─────────────────────> socket of its own
//	     ^                                                             │
//	     └─────────────────────────────────────────────────────────────┘
//	       another path needs its place, or the main socket is closed
//
// Nothing depends on which of the two a datagram comes through, or leaves by.

const (
	// maxConnected is the largest number of paths with sockets of their own. A poller looks at each that is
	// in use, which costs it a system call. Small WRITEs of one peer take a seventh less time with one, of
	// four peers in turn the same, of eight a fifteenth more (BenchmarkLinkFanIn). Eight paths are
	// therefore the most that a flood is kept apart from.
	maxConnected = 8
	// maxAsked is the largest number of paths that wait for one.
	maxAsked = 64
)

// Connect asks for a socket for a path alone. The watching goroutine opens it soon, if that is possible. The
// engine calls Connect within a run; it does not block.
func (l *Link) Connect(p *wire.Path) {
	if e := l.end(p); e == nil || e.main != nil || p.Local == (verbs.GID{}) || p.Local.Addr().IsLinkLocalUnicast() {
		return
	}
	l.asking.Lock()
	defer l.asking.Unlock()
	if len(l.asked) < maxAsked && !slices.Contains(l.asked, *p) {
		l.asked = append(l.asked, *p)
		l.poll.Wake() // there is a socket, so there is a poller
	}
}

// connectAsked opens the sockets that were asked for. It reports whether some must wait, because another
// goroutine opens or closes one, which may be waiting for the end of this one. The watching goroutine calls
// it.
func (l *Link) connectAsked() (wait bool) {
	l.asking.Lock()
	asked := l.asked
	if len(asked) == 0 || !l.mu.TryLock() {
		l.asking.Unlock()
		return len(asked) > 0
	}
	defer l.mu.Unlock()
	l.asked = nil
	l.asking.Unlock()
	for i := range asked {
		l.connectLocked(&asked[i])
	}
	return false
}

// connectLocked opens a socket for a path. It does nothing if the system refuses: the main socket serves all
// paths. l.mu is held.
func (l *Link) connectLocked(p *wire.Path) {
	main := l.end(p)
	if main == nil || main.main != nil {
		return
	}
	s, ok := main.sock.(*udp.Socket)
	if !ok {
		return
	}
	to := netip.AddrPortFrom(p.Peer.Addr(), p.PeerPort)
	own, err := s.Connect(p.Local.Addr(), to, udp.Options{ReceiveBuffer: receiveBuffer, Join: true, Fragment: true, Refusals: true})
	if err != nil {
		return
	}
	if !l.roomLocked() {
		_ = own.Close() // a socket that is not in use closes without an error
		return
	}
	e := l.newEnd(own, false)
	e.main, e.path = main, *p
	e.hot.Store(true)     // it is about to be used, and no other may take its place before that
	_ = l.attachLocked(e) // after an error the main socket serves the path
}

// roomLocked makes room for one more path, in place of the oldest that is quiet. l.mu is held.
func (l *Link) roomLocked() bool {
	n := 0
	var quiet *End
	for _, e := range *l.ends.Load() {
		if e.main != nil {
			n++
			if quiet == nil && !e.hot.Load() {
				quiet = e
			}
		}
	}
	if n < maxConnected {
		return true
	}
	if quiet != nil {
		l.removeLocked(quiet)
	}
	return quiet != nil
}
