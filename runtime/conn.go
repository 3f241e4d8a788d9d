package runtime

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
)

// connState is where a connection stands. The holder of the turn moves it.
//
//	          dial                 ESTABLISHED            Close
//	(new) ──────────> connecting ────────────> open ───────────────> draining
//	  │    accept          │                   │  │ DISCONNECTED     ^   │
//	  └────────────────────┤                   │  v            Close │   │ sends done, ctx ended,
//	                       │ refused,          │ left ───────────────┘   │ or ackGrace after
//	                       │ timeout,  failure │  │ sends done,          │ DISCONNECTED
//	                       │ given up          v  v ackGrace, failure    │
//	                       │                  failed                     │
//	                       │                   │ Close                   v
//	                       └───────────────────┴──────────────────────> gone
//
// A failure is a failed completion, Cancel, a peer that does not answer, or a device that
// is gone.
type connState uint8

const (
	connNew connState = iota
	connConnecting
	connOpen
	connLeft // the peer has disconnected; what is out may still be acknowledged
	connDraining
	connFailed
	connGone
)

// Conn is a connection: a queue pair with its memory, its credits and its end
// of the connection manager's conversation. All methods may be called from any
// goroutine. The caller closes it, also after it failed.
type Conn struct {
	rt   *Runtime
	sh   *shard
	q    *reactor.Queue
	opts Options

	// cause is why the connection takes no more operations; nil while it does.
	// Set once, by the holder or by Close; read by all. ended is closed by who
	// has set it.
	cause cause
	ended chan struct{}
	// credits are the peer's free receives. Made before the connection is given
	// to anybody; nil in raw mode.
	credits *ring.Credits
	// unreturned counts receives posted again that the peer was not told of.
	// Added to by Release, taken by whoever sends a frame (conn_credits.go).
	unreturned atomic.Uint32
	// granted counts the receives that the peer was ever told of. Written by
	// whoever sends a frame, read by the holder.
	granted atomic.Uint64
	// starving is set while somebody waits and no message is here. Written by
	// the holder, read by Release.
	starving atomic.Bool

	recvs      []recvSlot
	wantIn     ring.Inbox[recvWaiter, *recvWaiter] // Recv pushes, matchTask takes
	backIn     ring.Inbox[recvSlot, *recvSlot]     // Discard pushes, takeBack takes
	matchTask  reactor.Task
	creditTask reactor.Task

	// windows are those made and not closed. windowMu guards the set; it is taken
	// before a window's own, and never on the way of an operation.
	windowMu sync.Mutex
	windows  map[*Window]struct{}

	leaving  leaving       // its queue pair is being destroyed
	closed   chan struct{} // closed when gone
	closeErr error         // written before closed is

	// The holder's.
	state    connState
	id       queuePairID
	way      addressing             // of the dialing side
	promise  futures.Promise[*Conn] // of Dial, while connecting
	from     *request               // that it was made for; nil if it dialed
	timer    *reactor.Timer
	admitted bool
	met      bool   // peer is known
	hold     bool   // the handshake waits for its owner (Pending); immutable
	answers  bool   // the peer has asked
	private  []byte // the peer's
	// oneWR is what one work request of a transfer carries, in bytes. Immutable.
	oneWR         int
	inline        int // how many bytes a request carries in itself; written as largest is
	largest       int // MaxMessage; written before the connection is given to anybody
	local         netip.AddrPort
	remote        netip.AddrPort
	arrived       []int  // receive slots with messages, oldest first
	arrivals      uint64 // messages ever arrived: credits that the peer has used
	recvWaiters   []*recvWaiter
	pruned        int             // wants left by the last look at them (served)
	creditDue     bool            // credits to tell, but no room to send them
	disconnecting bool            // disconnected on the way to the end
	lost          bool            // the device is gone
	drained       bool            // nothing is out any more: nothing will arrive
	homes         []chan struct{} // of those in Cancel; closed when drained
	lastTaken     bool            // the last shared receive was taken
	onTaken       func()
}

// newConn prepares a connection on the next reactor, with options from inherit.
// It needs no turn.
func (rt *Runtime) newConn(opts Options) (_ *Conn, err error) {
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	if err := rt.fits(opts); err != nil {
		return nil, err
	}
	c := &Conn{rt: rt, sh: rt.shardOf(opts.Shared), opts: opts, ended: make(chan struct{}), closed: make(chan struct{})}
	c.oneWR = c.sh.r.MaxMessage()
	c.largest = c.oneWR
	c.matchTask.Fn, c.creditTask.Fn = c.match, c.sendCreditUpdate
	c.granted.Store(uint64(opts.RecvCredits))
	recvs, controls := opts.RecvCredits, 0
	if !opts.Raw {
		recvs, controls = recvs+controlRecvs, controlSends
	}
	if opts.keepAlive() > 0 {
		controls++
	}
	if opts.Shared != nil {
		recvs = -1
	}
	c.q, err = c.sh.r.Prepare(reactor.QueueConfig{
		PD: rt.pd, Type: opts.kind, SendDepth: opts.SendDepth, RecvDepth: recvs, Shared: opts.Shared.queue(), ControlDepth: controls,
		MaxSGE: opts.MaxSGE, Inline: max(opts.Inline, frameSize), Recorder: opts.Recorder,
	})
	if err != nil {
		return nil, err
	}
	c.q.OnFail(c.fail)
	c.q.OnFlush(c.flushed)
	if !opts.Raw {
		if err := c.makeRecvs(recvs); err != nil {
			return nil, c.abandon(err)
		}
	}
	rt.adopt(c)
	return c, nil
}

// LocalAddr and RemoteAddr are the ends of the connection.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr is the peer's end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// PrivateData is what the peer gave with its request or acceptance; of a peer that
// is no runtime with the zeros that the connection manager may have added behind
// it. It is the connection's and not to be changed.
func (c *Conn) PrivateData() []byte { return c.private }

// MaxMessage is the largest message that can be sent, in bytes: what the peer
// receives, as far as the port carries it; in raw mode what the port carries.
func (c *Conn) MaxMessage() int { return c.largest }

// Done is closed when the connection takes no more operations: it failed, or was
// closed by either side. Err says why. What has arrived can still be received
// until Close; of a device that was removed, what its reactor had seen by then. What is
// under way ends soon after; Cancel and Close wait for that.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err is why the connection takes no more operations; nil while it does.
func (c *Conn) Err() error { return c.cause.Load() }

// setCause records why the connection ends; the first reason stays.
func (c *Conn) setCause(err error) {
	if c.cause.set(err) {
		close(c.ended)
	}
}

// abandon gives back a connection that never reached its reactor.
func (c *Conn) abandon(err error) error {
	c.setCause(err)
	defer close(c.closed)
	for i := range c.recvs {
		c.recvs[i].free()
	}
	c.rt.forget(c)
	if derr := c.q.Discard(); derr != nil {
		return derr
	}
	return err
}

// cause is the first reason why something ended, and none before.
type cause struct {
	// err is set once, by whoever ends it; it publishes the error. Read on the way of
	// every operation.
	err atomic.Pointer[error]
}

// Load is the reason; nil for none. It does not block; any goroutine.
func (c *cause) Load() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// set makes err the reason, unless there is one; it tells whether it did.
func (c *cause) set(err error) bool { return c.err.CompareAndSwap(nil, &err) }
