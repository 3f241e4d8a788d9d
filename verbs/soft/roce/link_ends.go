package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// End is a socket of a link. Between processes each listener has one, and all dialed connections share
// another. A path that is in use may have one of its own, beside its main socket: see [Link.Connect].
type End struct {
	link *Link
	sock socket
	main *End      // of a socket of one path, and of an aside; otherwise nil
	path wire.Path // of such a socket
	key  uint32    // in the link's poller
	is4  bool      // it sends to IPv4 addresses only
	is6  bool      // it sends to IPv6 addresses only
	// gid and port are this end's part of a path. gid is zero if datagrams bring it (any).
	gid  verbs.GID
	any  bool
	port uint16
	refs atomic.Int32 // of a main socket; raised while it is above 0; the goroutine that lowers it to 0 closes the socket

	// armed is set while a datagram wakes the watching goroutine. Arm sets it, the watching goroutine
	// clears it when it was woken. It publishes nothing.
	armed atomic.Bool
	// ready is set when there may be datagrams: by the watching goroutine, and by a run that left some.
	// The runner clears it. It publishes nothing.
	ready atomic.Bool
	// hot is set by the runner when datagrams pass, and cleared by the watching goroutine when none has
	// for a while: pollers look only at hot sockets. It publishes nothing.
	hot atomic.Bool
	// flooded is set by the runner after junkPerRest datagrams that were all junk. The watching goroutine
	// clears it, and arms the socket pollTime later. It publishes nothing.
	flooded atomic.Bool
	junk    int // the runner's: datagrams since the last packet
	// next is the number of buffers of the next call that receives, at least 1. again is set if the last call has
	// filled all its buffers: a datagram that the next one finds was perhaps there before. Both are the runner's.
	next  int
	again bool
	// full is when the link stops waiting for room in the send buffer; 0: there is room. The runner's.
	full time.Duration
	// aside of a main socket sends the answers to addresses that are not proven; nil: e does. It is the runner's.
	aside  *End
	opened time.Duration // an aside was
	// renew is set by the runner when aside is full, and cleared by the watching goroutine, which opens another. It
	// publishes nothing.
	renew atomic.Bool
	// busy is set by the runner when datagrams pass, and cleared by the watching goroutine. It publishes
	// nothing.
	busy  atomic.Bool
	quiet int // the watching goroutine's: how often it has found busy clear
}

// Listen opens a socket at an address of this machine, or takes one more reference to it. The
// unspecified IPv6 address stands for all addresses, and with only6 for those of IPv6; without only6, on a system
// without IPv6, it is those of IPv4. Port 0 selects a free one. Close it once for each call. Not from within a run; it does not block.
//
// Errors: those of the socket. EADDRINUSE names the process that has the port, as far as that is known.
func (l *Link) Listen(at netip.AddrPort, only6 bool) (*End, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, verbs.ErrClosed
	}
	for _, e := range *l.ends.Load() {
		if e != l.dialer && e.main == nil && e.sock.Local() == at && (!e.any || e.is6 == only6) {
			e.hold()
			return e, nil
		}
	}
	return l.openLocked(at, only6, false)
}

// Dial returns the socket of dialed connections, which it opens if necessary. It stays open until the
// link is closed. Not from within a run; it does not block.
func (l *Link) Dial() (*End, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, verbs.ErrClosed
	}
	if l.dialer == nil {
		e, err := l.openLocked(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), false, true)
		if err != nil {
			return nil, err
		}
		l.dialer = e
	}
	return l.dialer, nil
}

// openLocked opens a socket. With dials it is that of dialed connections, which alone learns, beside the sockets of single
// paths, of destinations without a socket: a request to there ends at once (report). Other sockets would lose datagrams to the reports that
// strangers cause, who ask a listener and close their sockets. l.mu is held.
func (l *Link) openLocked(at netip.AddrPort, only6, dials bool) (*End, error) {
	// The ICRC of RoCEv2 covers IPv4's identification, which joined datagrams and fragments have of their own.
	opt := udp.Options{ReceiveBuffer: receiveBuffer, Join: l.far, Fragment: l.far, Refusals: dials, Only6: only6}
	s, err := udp.Listen(at, opt)
	if errors.Is(err, syscall.EAFNOSUPPORT) && at.Addr().IsUnspecified() && !only6 {
		s, err = udp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), opt)
	}
	if err != nil {
		return nil, refused(at, l.name, err)
	}
	if err := l.watching(); err != nil {
		return nil, errors.Join(fmt.Errorf("roce: %s: %w", l.name, err), s.Close())
	}
	e := l.newEnd(s, only6)
	if err := l.attachLocked(e); err != nil {
		return nil, err
	}
	l.asideLocked(e)
	return e, nil
}

// newEnd makes an end of the link for a socket. At an unspecified address only6 says that it has no addresses of IPv4.
func (l *Link) newEnd(s socket, only6 bool) *End {
	local := s.Local()
	e := &End{link: l, sock: s, key: l.keys, port: local.Port(), next: 1}
	e.refs.Store(1)
	l.keys++
	if local.Addr().IsUnspecified() {
		e.any = true
		e.is4, e.is6 = local.Addr().Is4(), only6
	} else {
		e.is4, e.is6, e.gid = local.Addr().Is4(), local.Addr().Is6(), gidOf(local)
	}
	return e
}

// attachLocked has the watching goroutine and the runner use e, or closes its socket. l.mu is held.
func (l *Link) attachLocked(e *End) error {
	if err := l.poll.AttachOnce(e.sock, e.key); err != nil {
		return errors.Join(fmt.Errorf("roce: %s: %w", l.name, err), e.sock.Close())
	}
	l.addLocked(e)
	e.arm()
	return nil
}

// addLocked has the runner use e. l.mu is held.
func (l *Link) addLocked(e *End) {
	ends := append(slices.Clone(*l.ends.Load()), e)
	l.ends.Store(&ends)
}

// watching starts the watching goroutine with the first socket. l.mu is held.
func (l *Link) watching() error {
	if l.poll != nil {
		return nil
	}
	p, err := sys.NewPoller()
	if err != nil {
		return err
	}
	l.poll, l.ended = p, make(chan struct{})
	go l.watch()
	return nil
}

// Port returns the socket's UDP port.
func (e *End) Port() uint16 { return e.port }

// Path returns the path from an address of this machine, at this socket, to a peer.
func (e *End) Path(local netip.Addr, peer netip.AddrPort) wire.Path {
	p := wire.Path{Peer: gidOf(peer), PeerPort: peer.Port(), Local: e.gid, LocalPort: e.port}
	if e.any && udp.ReportsTo {
		p.Local = verbs.GIDFromAddr(local)
	}
	return p
}

// Hold takes one more reference to the socket of a path; nil if it is closed. Any goroutine; it does not
// block.
func (l *Link) Hold(p *wire.Path) *End {
	e := l.end(p)
	if e != nil && e.main != nil {
		e = e.main
	}
	if e != nil && e.hold() {
		return e
	}
	return nil
}

func (e *End) hold() bool {
	for n := e.refs.Load(); n > 0; n = e.refs.Load() {
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Close gives up one reference. The last one closes the socket, after what was sent. It waits for a
// current run; not from within a run.
func (e *End) Close() {
	l := e.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.refs.Add(-1) > 0 || l.closed {
		return
	}
	for _, o := range *l.ends.Load() {
		if o.main == e {
			l.removeLocked(o)
		}
	}
	l.removeLocked(e)
}

// removeLocked sends the packets that wait, and closes a socket. l.mu is held.
func (l *Link) removeLocked(e *End) {
	l.up.Exclusive(func() {
		l.transmit()
		l.tx.forget(e)
		l.dropAside(e)
		ends := slices.DeleteFunc(slices.Clone(*l.ends.Load()), func(o *End) bool { return o == e })
		l.ends.Store(&ends)
		l.stats.Dropped += e.sock.Buffer().Dropped
	})
	_ = l.poll.Detach(e.key) // it is attached
	_ = e.sock.Close()       // a socket without users closes without an error
}

// reaches reports whether an address is of the socket's family, or of one of them.
func (e *End) reaches(a netip.Addr) bool {
	if a.Is4() {
		return !e.is6
	}
	return !e.is4
}

// end returns the socket of a path: its own if it has one, otherwise the main one; nil if there is none.
func (l *Link) end(p *wire.Path) (main *End) {
	for _, e := range *l.ends.Load() {
		switch {
		case e.main != nil:
			if e.path == *p {
				return e
			}
		case e.port == p.LocalPort && (e.any || e.gid == p.Local) && e.reaches(p.Peer.Addr()):
			main = e
		}
	}
	return main
}

// refused is the error of a device whose socket could not be opened.
func refused(at netip.AddrPort, name string, err error) error {
	const op = "roce: device %s: %w"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		who := udp.Holder(at)
		if who == "" {
			who = "another socket"
		}
		if at.Port() != Port {
			return fmt.Errorf(op+": %s has UDP port %d of %v", name, err, who, at.Port(), at.Addr())
		}
		return fmt.Errorf(op+": %s has it (the kernel's Soft-RoCE has the port of every address of its network "+
			"name space: see \"rdma link\"); use another address of this machine, or another name space", name, err, who)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf(op+": %v is no address of this machine", name, err, at.Addr())
	}
	return fmt.Errorf(op, name, err)
}
