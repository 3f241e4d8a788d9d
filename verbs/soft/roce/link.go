package roce

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Port is the UDP port of RoCEv2 (IANA: roce).
const Port = 4791

const (
	// receiveBuffer is the size of a socket's receive buffer in bytes that a link asks for. Linux
	// grants net.core.rmem_max at most, 212,992 by default, and counts overhead.
	receiveBuffer = 4 << 20
	// maxReports is how many reports of the system one run takes from a socket. Each costs a system call, and any
	// stranger can cause them.
	maxReports = 16
	// quotedLen is how much of a refused packet the device gets: the headers of a management datagram, up to the
	// transaction ID.
	quotedLen = 64
	// maxFull is how long the link waits for room in a send buffer. A slow line of 10 Mbit/s takes 52 ms for a full
	// batch. Connections end after a second.
	maxFull = 60 * time.Millisecond
	// sendAgain is the time after which a link sends again when the send buffer was full.
	sendAgain = time.Millisecond
)

// socket is a *udp.Socket, or a test's.
type socket interface {
	sys.Source
	Local() netip.AddrPort
	Send(ms []udp.Out) (int, error)
	Recv(ms []udp.In) (int, error)
	Refused(quoted []byte) (to netip.AddrPort, n int, ok bool)
	Buffer() udp.Buffer
	Close() error
}

// Stats is the counters of a link.
type Stats struct {
	Sent     uint64 // datagrams
	Received uint64 // datagrams, the refused ones too
	Refused  uint64 // not a packet: too short, cut, an unknown header; or from the address of a device of this process
	BadICRC  uint64
	Unsent   uint64 // refused by the system, for example without a route, or too long; or lost in front of a full send buffer
	TooLong  uint64 // of those, longer than the path carries
	Starved  uint64 // runs that received nothing because all buffers were in use
	// Buffer is the smallest receive buffer of the open sockets in bytes, as the system counts them: with
	// its overhead. 0: none, or not known. If Dropped rises, a larger one helps (on Linux,
	// net.core.rmem_max).
	Buffer  int
	Dropped uint64 // datagrams that found a receive buffer full; joined ones count as one
}

// junk returns how many datagrams were no packets.
func (s *Stats) junk() uint64 { return s.Refused + s.BadICRC }

// Link is the uplink of one device. Its methods except Listen, Dial, Close and Stats belong to the
// fabric and to goroutines that poll.
type Link struct {
	up   *fabric.Port
	to   *fabric.Route // to the device
	name string        // the device's
	far  bool          // between processes: paths have UDP ports; see OpenPeers

	now time.Duration // of the last run; the runner's, as quoted
	// quoted is report's. A variable of its own would be allocated for each call.
	quoted [quotedLen]byte

	// mu guards opening and closing sockets, and these.
	mu     sync.Mutex
	closed bool
	dialer *End
	keys   uint32        // given to ends so far
	ended  chan struct{} // closed when the watching goroutine has ended; nil before the first socket
	poll   *sys.Poller   // nil before the first socket

	// asking guards asked. Its holder may try to take mu, but does not wait for it.
	asking sync.Mutex
	asked  []wire.Path // paths that wait for a socket of their own

	// ends is the open sockets. Written under mu, a new slice each time; read by the runner, the
	// watching goroutine and pollers.
	ends atomic.Pointer[[]*End]
	// polled is set by Poll, by any goroutine. Arm and the watching goroutine clear it. It publishes
	// nothing.
	polled atomic.Bool
	// wanted is set by Poll, by any goroutine: the next run looks at the hot sockets. The runner clears it. It
	// publishes nothing.
	wanted atomic.Bool
	// attending is set by the watching goroutine from a run until it has called after. It publishes nothing.
	attending atomic.Bool
	after     func() // see OpenPeers

	tx    txBatch
	rx    rxBatch
	cover Cover // of a packet; the runner's
	// returned are the buffers whose packets are released. Any goroutine pushes, the link takes.
	returned ring.Inbox[buffer, *buffer]
	// starving is set by the link when it has no buffer left. A goroutine that returns one clears it
	// and has the link run.
	starving atomic.Bool

	stats Stats // the runner's
}

var _ fabric.Endpoint = (*Link)(nil)

// Open makes a link in the format of RoCEv2 for the device at port p, whose GID is an address of this
// machine, and attaches it. It has one socket, at [Port]. For after see [OpenPeers]. Close the link before
// p is detached.
//
// Errors: those of the socket, for example that another process has the port.
func Open(p *fabric.Port, name string, after func()) (*Link, error) {
	l := newLink(name, false, after)
	l.attach(p)
	if _, err := l.Listen(netip.AddrPortFrom(p.GID().Addr(), Port), false); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// OpenPeers makes a link between processes for the device at port p and attaches it. It has no socket
// until Listen or Dial. If the system reports that a packet met no socket at the end of its path, the
// device gets a packet without a header from there; its payload is the beginning of the one that was refused. The link's goroutine calls after when it has received and let
// others run; it may not be nil. Close the link before p is detached.
func OpenPeers(p *fabric.Port, name string, after func()) *Link {
	l := newLink(name, true, after)
	l.attach(p)
	return l
}

func newLink(name string, far bool, after func()) *Link {
	l := &Link{name: name, far: far, after: after}
	l.rx.size, l.rx.batch = bufferLen, udp.MaxBatch
	if far {
		l.rx.size, l.rx.batch = udp.MaxJoined, joinedBatch
	}
	l.ends.Store(new([]*End))
	return l
}

// attach makes l the uplink of p.
func (l *Link) attach(p *fabric.Port) {
	l.up = p.AttachUplink(l.name, l.far, l)
	l.up.Exclusive(func() { l.to = l.up.Route(wire.To(p.GID())) })
}

// Progress sends what the device has sent, and receives. The fabric calls it.
func (l *Link) Progress(now time.Duration) (next time.Duration, more bool) {
	if l.to == nil {
		return 0, false // not attached yet
	}
	l.now = now
	if !l.transmit() {
		next = now + sendAgain
	}
	// The run of a goroutine that posts does not look: a goroutine that waits for an answer polls after it has
	// posted, and the system call for an empty socket would only delay it.
	polls := l.wanted.Load() && l.wanted.Swap(false)
	for _, e := range *l.ends.Load() {
		ready := e.ready.Load() && e.ready.Swap(false)
		if ready || polls && e.hot.Load() {
			if l.receive(e, !ready) {
				e.ready.Store(true)
				more = true
			}
			l.report(e)
		}
	}
	return next, more
}

// report tells the device which packets met no socket: it gets the beginning of each as the payload of a packet without
// a header. The rest of more than maxReports reports waits for the next run.
func (l *Link) report(e *End) {
	for range maxReports {
		to, n, ok := e.sock.Refused(l.quoted[:])
		if !ok {
			return
		}
		if l.far && to.IsValid() {
			k := l.up.Get()
			k.SetFar(&wire.Path{Peer: gidOf(to), PeerPort: to.Port(), LocalPort: e.port})
			k.AddCopy(l.quoted[:n])
			l.up.SendTo(l.to, k)
		}
	}
}

// Close detaches the link and closes its sockets. Packets that the device sends afterwards are lost.
// It waits for a current run. Idempotent; not from within a run.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.up.Detach()
	l.tx.drop()
	if k := l.tx.next; k != nil {
		k.Release()
		l.tx.next = nil
	}
	if l.poll != nil {
		_ = l.poll.Close() // only the first call has an effect; there is no other error
		<-l.ended
	}
	var err error
	for _, e := range *l.ends.Load() {
		l.dropAside(e)
		err = errors.Join(err, e.sock.Close())
	}
	l.ends.Store(new([]*End))
	return err
}

// Stats returns the counters. It waits for a current run; not from within a run.
func (l *Link) Stats() (s Stats) {
	l.mu.Lock() // no socket is closed meanwhile
	defer l.mu.Unlock()
	l.up.Exclusive(func() { s = l.stats })
	for _, e := range *l.ends.Load() {
		b := e.sock.Buffer()
		s.Dropped += b.Dropped
		if s.Buffer == 0 || b.Size < s.Buffer {
			s.Buffer = b.Size
		}
	}
	return s
}

// gidOf returns the GID of an address.
func gidOf(a netip.AddrPort) verbs.GID { return verbs.GIDFromAddr(a.Addr()) }
