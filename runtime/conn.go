package runtime

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// connState is the state of a connection. Only the holder of the turn (the goroutine that runs the
// connection's reactor) changes the state.
//
//	          dial                 ESTABLISHED            Close
//	(new) ──────────> connecting ────────────> open ───────────────> draining
//	  │    accept          │                   │  │ DISCONNECTED     ^   │
//	  └───── abandon ──────┤                   │  v            Close │   │ sends done, failure,
//	                       │ refused,          │ left ───────────────┘   │ ctx ended, or ackGrace
//	                       │ timeout,  failure │  │ sends done,          │ after DISCONNECTED
//	                       │ failure, Close    v  v ackGrace, failure    │
//	                       │                  failed                     │
//	                       │                   │ Close, or flushBound    v
//	                       └───────────────────┴──────────────────────> gone
//
// On iWARP the accepting end also waits for the peer's first frame before it opens (conn_first.go).
// A failure is, for example, a failed completion, Cancel, a peer that does not answer, or a removed
// device. Close also stands for Abort. The times ackGrace and flushBound are in conn_teardown.go.
type connState uint8

const (
	connNew connState = iota
	connConnecting
	connOpen
	connLeft // the peer has disconnected; its acknowledgments may still arrive
	connDraining
	connFailed
	connGone
)

// Conn is a connection: a queue pair, its memory, its credits and its connection identifier. All
// methods may be called from any goroutine. The caller must close the Conn, even if the connection
// has failed.
type Conn struct {
	rt   *Runtime
	sh   *shard
	q    *reactor.Queue
	opts Options

	// cause is the reason why the connection accepts no more operations. The first of these events
	// sets cause: a failure, the peer's DISCONNECTED, Close, Abort or Cancel. Any goroutine reads
	// cause. The goroutine that sets cause then closes the channel ended.
	cause cause
	ended chan struct{}
	// credits counts the messages that the peer permits this side to send now. The field is set
	// before the user gets the connection. In raw mode it stays nil.
	credits *allowance
	// ledger counts the credits that this side gives to the peer (conn_credits.go).
	ledger ledger
	// window is how many messages the peer may have sent and the program not have released. The holder
	// changes it after the connection was made; goroutines that release messages read it.
	window atomic.Int32
	// pool has the receives of the connection. It is nil if the connection has receives of its own:
	// ownRecvs of them in recvs. Immutable.
	pool     *recvPool
	ownRecvs int
	// starving is set while a receiver waits for a message and no message has arrived, and while a Call waits and
	// the peer has no credit for the answer. The holder writes starving; Message.Release reads it.
	starving atomic.Bool

	recvs  recvSlots                           // those of pool, or of this connection
	backIn ring.BareInbox[recvSlot, *recvSlot] // pushed by disposeMessage, taken by takeBack
	// arrived holds the slots of the messages that no receiver has got, oldest first, except those in
	// returned. The holder pushes. While line is 0, any goroutine pops; otherwise only the holder does.
	// It is nil until the first message arrives; the holder makes it.
	arrived atomic.Pointer[ring.IndexQueue]
	// line counts the waits that have no result yet, and the messages of discarded futures that were
	// not delivered again. Both come before a call that begins now, which may therefore take a message
	// from arrived only while line is 0. Goroutines that begin to wait or discard a message add 1. The
	// holder subtracts.
	line       atomic.Int32
	wantIn     ring.BareInbox[recvWaiter, *recvWaiter] // pushed by Recv, RecvTo and Call, taken by match
	matchTask  reactor.Task
	creditTask reactor.Task

	// asked is the number of the last question. Goroutines that call add 1. It publishes nothing.
	asked atomic.Uint32

	// updateDue is set from the time when a "many" update becomes due until sendCreditUpdate runs. The
	// goroutine that releases a message sets it; the holder clears it.
	updateDue atomic.Bool
	// updateTimer calls updateLate. It is nil until an update is due for the first time. The goroutine
	// that sets updateDue makes or resets it.
	updateTimer atomic.Pointer[time.Timer]

	// creditLine counts the waits for a credit that have no result yet. They come before a goroutine
	// that needs a credit now. A goroutine that begins to wait adds 1, the holder subtracts.
	creditLine     atomic.Int32
	creditIn       ring.BareInbox[creditWait, *creditWait] // pushed by waitCredit, taken by serveCredits
	creditWaitTask reactor.Task

	// windowMu guards Conn.windows, the set of open windows. A goroutine that locks windowMu and
	// Window.mu locks windowMu first. Starting an operation does not lock windowMu. The
	// holder locks both when the peer has invalidated a window, so no goroutine enters the kernel while it holds
	// one of them.
	windowMu sync.Mutex
	windows  map[*Window]struct{}

	// large has the large messages that are sent (conn_large.go). The goroutine that sends the first makes it;
	// the holder stores an empty one when the connection is gone.
	large atomic.Pointer[largeSends]

	// direct is what DeclareDirectWrite has set. Any goroutine writes it; a FLUSH reads it.
	direct uatomic.Bool

	leaving  leaving       // tells Close that the destruction of the queue pair has begun
	closed   chan struct{} // closed when the connection is gone
	closeErr error         // written before closed is closed

	// Only the holder uses the fields below, with two exceptions. Any goroutine may read oneWR,
	// which is immutable. After the user has got the Conn, any goroutine may also read the fields
	// local, remote, link, private, qpn, from, inline, eager and largest, which then do not change any more.
	state connState
	id    queuePairID
	connCommands
	resolver  addrResolver           // address resolution of the dialing side
	attempt   *dialAttempt           // the Dial that made the connection, until it is established; nil for none
	promise   futures.Promise[*Conn] // the result of Dial, while connecting
	from      *request               // the peer's request that this connection accepts; nil for none
	listener  *Listener              // of a Pending that accepts, until the handshake ends; otherwise nil
	timer     *reactor.Timer
	admitted  bool   // q.Admit has succeeded
	helloRead bool   // the peer's hello was read
	hold      bool   // the handshake waits for Pending.Connect
	accepting bool   // this is the accepting side
	up        bool   // ESTABLISHED has arrived
	silent    bool   // the peer's First frame has not arrived; see conn_first.go
	private   []byte // the peer's private data
	ownData   []byte // the private data of this side's program
	qpn       uint32 // the number of the queue pair
	// oneWR is the largest transfer of one work request, in bytes.
	oneWR         int
	inline        int // largest inline payload, in bytes
	eager         int // the largest message that fits into a receive of the peer
	largest       int // the result of MaxMessage
	local         netip.AddrPort
	remote        netip.AddrPort
	link          string
	returned      []uint32 // slots of messages of discarded futures, oldest first
	arrivals      uint64   // how many of the peer's credits were used or given up; most of them by messages
	spent         uint64   // of arrivals: those that were no message of use; see messages
	recvWaiters   []*recvWaiter
	calls         calls
	stoppedSince  time.Time // when Stuck first saw that no answer can come; zero if one can
	creditWaits   []*creditWait
	creditsPruned int    // as pruned, for creditWaits
	pruned        int    // shortest length of recvWaiters since the last pruning
	creditDue     bool   // a frame without payload, or a READ, waits until an earlier one completes
	recallOwed    uint32 // credits that the peer has recalled; 0 when a Return has answered
	updateSent    bool   // a credit update was sent
	updateHeld    bool   // a credit update waits until the peer has processed the last one
	updateMark    uint32 // if updateSent: the peer has processed the last update when more messages have arrived
	missing       int    // receives by which the window grows when they were made
	wanting       bool   // is in recvPool.wanting
	recalls       recalls
	// fetches has the large messages that are received. It is nil until the first arrives. Goroutines that
	// release such a message read it, too.
	fetches       *fetches
	idled         bool            // no request is outstanding, except receives of a pool
	disconnecting bool            // the method disconnect was called
	lost          bool            // the device is gone
	drained       bool            // no request is outstanding, so no more messages arrive
	drainWaiters  []chan struct{} // one channel for each Cancel; closed when drained is set
	lastWQESeen   bool            // the device has reported LAST_WQE_REACHED
	lastWQEFns    []func()        // called at LAST_WQE_REACHED; see afterLastWQE
}

// newConn prepares a connection. The connection belongs to the reactor of opts.Shared, or, if
// Shared is nil, to the next reactor in rotation. The argument opts must come from Runtime.inherit.
// The caller need not hold the turn. newConn waits for memory until asked ends.
func (rt *Runtime) newConn(asked reactor.DoneContext, opts Options) (_ *Conn, err error) {
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	if err := rt.fits(opts); err != nil {
		return nil, err
	}
	c := &Conn{rt: rt, sh: rt.shardOf(opts.Shared), opts: opts, ownData: opts.PrivateData, ended: make(chan struct{}), closed: make(chan struct{})}
	if rt.pooled(opts) {
		if c.pool, err = c.sh.joinPool(asked, frameSize+opts.MessageSize); err != nil {
			return nil, err
		}
		c.opts.Shared, c.recvs = c.pool.s, c.pool.slots
	} else if c.opts.RecvCredits == 0 {
		c.opts.RecvCredits = DefaultRecvCredits
	}
	c.oneWR = c.sh.r.MaxMessage()
	c.eager, c.largest = c.oneWR, c.oneWR
	c.matchTask.Fn, c.creditTask.Fn, c.creditWaitTask.Fn = c.match, c.sendCreditUpdate, c.serveCredits
	credits := max(c.opts.RecvCredits, 1) // the smallest window of a pool
	c.ledger.start(credits)
	c.window.Store(int32(credits))
	recvs, controls := c.opts.RecvCredits, 0
	if !opts.Raw {
		recvs, controls = recvs+controlRecvs, controlSends
	}
	if rt.carriesLarge(opts) {
		recvs, controls = recvs+maxLarge, controls+maxLarge
	}
	if opts.keepAlive() > 0 {
		controls++
	}
	if c.opts.Shared != nil {
		recvs = -1
	}
	least := opts.least
	least.RecvDepth, least.RecvSGE = recvs, opts.least.MaxSGE
	pieces := opts.MaxSGE
	if !opts.Raw {
		pieces, least.RecvSGE = 1, 1 // the receives are the runtime's
	}
	c.q, err = c.sh.r.Prepare(reactor.QueueConfig{
		PD: rt.pd, Type: opts.kind, SendDepth: opts.SendDepth, RecvDepth: recvs, Shared: c.opts.Shared.queue(), ControlDepth: controls,
		MaxSGE: opts.MaxSGE, RecvSGE: pieces, Inline: max(opts.Inline, frameSize+proto.SourceSize), Recorder: opts.Recorder, Least: &least,
		Windows: rt.windows(opts),
	})
	if err != nil {
		c.leavePool()
		return nil, err
	}
	c.q.OnFail(c.fail)
	c.q.OnFlush(c.flushed)
	if !opts.Raw && c.pool == nil {
		if err := c.makeRecvs(asked, recvs); err != nil {
			return nil, c.abandon(err)
		}
	}
	rt.adopt(c)
	return c, nil
}

// LocalAddr returns the local address of the connection.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Link names the link to the peer. For a connection that was made with the connection manager on
// the software RNIC, Link returns one of these names:
//
//	"process"   both ends are in this process
//	"peers"     the peer is the software RNIC of another process, reached by UDP
//	"roce"      the peer is reached by RoCEv2, in UDP
//
// For any other connection, Link returns the provider's name.
func (c *Conn) Link() string { return c.link }

// QPNum returns the number of the queue pair, which the device may give to another one when this one is
// closed.
func (c *Conn) QPNum() uint32 { return c.qpn }

// PrivateData returns the private data of the peer's request or acceptance. If the peer does not
// run this package, the connection manager may have padded the data with zeros. The caller must
// not modify the data.
func (c *Conn) PrivateData() []byte { return c.private }

// MaxMessage returns the size of the largest message that the connection can send, in bytes. In raw
// mode this size is the port's limit. In managed mode it is the smaller of the peer's
// Options.MaxMessage and the port's limit minus the message header. If one of the two devices has no
// memory windows, the peer's Options.MessageSize takes the place of its MaxMessage.
func (c *Conn) MaxMessage() int { return c.largest }

// Done returns a channel that is closed when the connection accepts no more operations, because the
// connection has failed or either side has closed it. Err returns the reason. Until the program
// calls Close, it can still receive messages that have arrived. If the device was removed, it can
// receive only messages that the reactor had polled before the removal. Outstanding operations end
// soon; Cancel and Close wait for them.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err returns why the connection accepts no more operations, or nil while it accepts them.
func (c *Conn) Err() error { return c.cause.Load() }

// setCause records the reason why the connection ends. Only the first call has an effect.
func (c *Conn) setCause(err error) {
	if c.cause.set(err) {
		close(c.ended)
	}
}

// abandon frees a connection that newConn has prepared and that was not started. The argument err
// becomes the connection's cause. abandon returns err, or the error of Queue.Discard if Discard
// fails.
func (c *Conn) abandon(err error) error {
	c.setCause(err)
	defer close(c.closed)
	c.freeRecvs(0)
	c.leavePool()
	c.rt.forget(c)
	if derr := c.q.Discard(); derr != nil {
		return derr
	}
	return err
}

// cause is the first reason why an object ended. It is empty before the object has ended.
type cause struct {
	// The pointer err is set one time, by the goroutine that ends the object, and publishes the
	// error. Every operation reads the pointer.
	err atomic.Pointer[error]
}

// Load returns the reason, or nil if there is none. Any goroutine may call it.
func (c *cause) Load() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// set makes err the reason and returns true, unless there is a reason already.
func (c *cause) set(err error) bool { return c.err.CompareAndSwap(nil, &err) }
