package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Port is the UDP port of RoCEv2 (IANA: roce).
const Port = 4791

const (
	// receiveBuffer is the size of the socket's receive buffer in bytes that a link asks for. Linux
	// grants net.core.rmem_max at most, 212,992 by default, and counts overhead.
	receiveBuffer = 4 << 20
	// batchesPerRun bounds what one run receives, so that a flood lets others run in between.
	batchesPerRun = 4
	// sendAgain is the time after which a link sends again when the send buffer was full.
	sendAgain = time.Millisecond
)

// socket is a *udp.Socket, or a test's.
type socket interface {
	sys.Source
	Local() netip.AddrPort
	Send(ms []udp.Out) (int, error)
	Recv(ms []udp.In) (int, error)
	Close() error
}

// Stats is the counters of a link.
type Stats struct {
	Sent     uint64 // datagrams
	Received uint64 // datagrams, the refused ones too
	Refused  uint64 // not a packet: too short, cut, an unknown header
	BadICRC  uint64
	Unsent   uint64 // refused by the system; for example without a route, or too long
	TooLong  uint64 // of those, longer than the path carries
	Starved  uint64 // runs that received nothing because all buffers were in use
}

// Link is the uplink of one device. Its methods except Close and Stats belong to the fabric.
type Link struct {
	sock socket
	up   *fabric.Port
	to   *fabric.Route // to the device
	is4  bool

	poll  *sys.Poller
	ended chan struct{} // closed when the watching goroutine has ended
	// armed is set while a datagram wakes the watching goroutine. Arm sets it, the watching goroutine
	// clears it when it was woken. It publishes nothing.
	armed atomic.Bool
	// polled is set by Poll, by any goroutine. Arm and the watching goroutine clear it. It publishes
	// nothing.
	polled atomic.Bool

	tx txBatch
	rx rxBatch
	// returned are the buffers whose packets are released. Any goroutine pushes, the link takes.
	returned ring.Inbox[buffer, *buffer]
	// starving is set by the link when it has no buffer left. A goroutine that returns one clears it
	// and has the link run.
	starving atomic.Bool

	stats Stats // the runner's
}

var _ fabric.Endpoint = (*Link)(nil)

// Open makes a link for the device at port p, whose GID is an address of this machine, and attaches
// it. Close it before p is detached.
//
// Errors: those of the socket, for example that another process has the port.
func Open(p *fabric.Port, name string) (*Link, error) {
	addr := p.GID().Addr()
	sock, err := udp.Listen(netip.AddrPortFrom(addr, Port), receiveBuffer)
	if err != nil {
		return nil, refused(netip.AddrPortFrom(addr, Port), name, err)
	}
	l := newLink(sock)
	if l.poll, err = sys.NewPoller(); err == nil {
		err = l.poll.AttachOnce(sock, socketKey)
	}
	if err != nil {
		if l.poll != nil {
			_ = l.poll.Close() // as for the socket: the first error is the one to report
		}
		_ = sock.Close()
		return nil, fmt.Errorf("roce: %s: %w", name, err)
	}
	l.attach(p, name)
	l.ended = make(chan struct{})
	go l.watch()
	return l, nil
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
		return fmt.Errorf(op+": %s has it (the kernel's Soft-RoCE has the port of every address of its network "+
			"name space: see \"rdma link\"); use another address of this machine, or another name space", name, err, who)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf(op+": %v is no address of this machine", name, err, at.Addr())
	}
	return fmt.Errorf(op, name, err)
}

func newLink(sock socket) *Link {
	return &Link{sock: sock, is4: sock.Local().Addr().Is4()}
}

// attach makes l the uplink of p.
func (l *Link) attach(p *fabric.Port, name string) {
	l.up = p.AttachUplink(name, l)
	l.up.Exclusive(func() { l.to = l.up.Route(p.GID()) })
}

// Goroutines that poll completion queues receive while they poll. The watching goroutine does so
// otherwise, woken by the first datagram; while others poll the socket is not armed for it, or each
// datagram would wake a thread that finds nothing.
//
//	             Arm: a poller is about to sleep
//	   ┌────────────────────────────────────────────────┐
//	   │                                                v
//	unarmed <───── a datagram wakes the watcher ────── armed
//	   │  ^                                             ^
//	   │  └─ polled in the last pollTime: waits for it  │
//	   └──────── not polled: the watcher arms ──────────┘
//
// A poller that is about to sleep calls Arm and then looks once more, as at a completion queue. If it
// does not, because its queues are armed already, the watcher arms within pollTime.

// pollTime is how long the watching goroutine leaves the socket to a goroutine that has polled. While
// others poll it wakes up once in that time.
const pollTime = time.Millisecond

// socketKey is the key of the socket in the link's poller.
const socketKey = 0

// watch is the watching goroutine. It ends when the poller is closed.
func (l *Link) watch() {
	defer close(l.ended)
	var keys [1]uint32
	for {
		var until time.Time
		// A socket without buffers to receive into would wake this goroutine again and again.
		if l.polled.Swap(false) || l.starving.Load() {
			until = time.Now().Add(pollTime)
		} else {
			l.Arm()
		}
		n, err := l.poll.Wait(until, keys[:])
		if err != nil {
			return
		}
		if n > 0 {
			l.armed.Store(false) // before the link runs: a later Arm is for later datagrams
			l.up.Kick()
		}
	}
}

// Arm has the next datagram, or one that is there, wake the watching goroutine. A goroutine that has
// called Poll calls it before it sleeps, and then Poll once more. Any goroutine; it does not block.
func (l *Link) Arm() {
	l.polled.Store(false)
	if !l.armed.Load() && l.armed.CompareAndSwap(false, true) {
		_ = l.poll.Rearm(socketKey) // fails only once the link is closed
	}
}

// Poll receives the datagrams in the socket, on this goroutine unless another one runs the link. The
// argument again means that the caller will soon call Poll or Arm. Any goroutine, but not within a run; it does not block.
func (l *Link) Poll(again bool) {
	if again && !l.polled.Load() {
		l.polled.Store(true)
	}
	if l.up.Enter() {
		l.up.Run()
	}
}

// Progress sends what the device has sent, and receives. The fabric calls it.
func (l *Link) Progress(now time.Duration) (next time.Duration, more bool) {
	if l.to == nil {
		return 0, false // not attached yet
	}
	if !l.transmit() {
		next = now + sendAgain
	}
	return next, l.receive()
}

// Close detaches the link and closes its socket. Packets that the device sends afterwards are lost.
// It waits for a current run. Idempotent; not from within a run.
func (l *Link) Close() error {
	l.up.Detach()
	l.tx.drop()
	if l.poll != nil {
		_ = l.poll.Close() // only the first call has an effect; there is no other error
		<-l.ended
	}
	return l.sock.Close()
}

// Stats returns the counters. It waits for a current run; not from within a run.
func (l *Link) Stats() (s Stats) {
	l.up.Exclusive(func() { s = l.stats })
	return s
}

// gidOf returns the GID of an address.
func gidOf(a netip.AddrPort) verbs.GID { return verbs.GIDFromAddr(a.Addr()) }
