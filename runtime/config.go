package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Config.
const (
	DefaultSendDepth   = 256
	DefaultRecvCredits = 64
	// DefaultMessageSize and the header in front of a message fill a block of
	// 8 KiB; one byte more would take one of 16 KiB for every receive.
	DefaultMessageSize    = 8<<10 - frameSize
	DefaultMaxSGE         = 4
	DefaultInline         = 128
	DefaultConnectTimeout = 5 * time.Second
	DefaultPeerTimeout    = 5 * time.Second
	DefaultBacklog        = 128
	DefaultHandlers       = 64

	minMessageSize = 64
	maxCredits     = 1 << 14
	maxSends       = 1 << 15 // with maxCredits and the control requests within what a reactor numbers
	maxPieces      = 63      // a device's usual limit of 64 elements, less the header's
	maxInline      = 1 << 13 // more than any device takes
	maxCQEntries   = 1 << 24 // of the devices known, 4 million
	maxReactors    = 64
	maxBacklog     = 1 << 12          // its limits are kept by looking through it; the kernel has 1024
	maxRecorder    = 1 << 20          // as a reactor
	minPeerTimeout = time.Millisecond // less is the scheduler's, not the peer's
)

// Config describes a Runtime. The zero value works: the device that VERBENA_DEVICE
// names, else the software RNIC's first, and one reactor per NUMA node.
type Config struct {
	// Provider drives the device; default is what Device says, else the software
	// RNIC of this process, soft.Default of package verbs/soft.
	Provider verbs.Provider
	// Device is its name. A provider may stand in front of it: "ibv:mlx5_0" is a
	// device of libibverbs, "soft:soft1" one of the software RNIC. "ibv:", or no
	// name with a Provider, is the provider's first device with an active port.
	// Where Provider and Device are both empty the environment variable
	// VERBENA_DEVICE (DeviceEnv) stands for Device, so that who runs a program
	// chooses; without it, the software RNIC's first device.
	Device string
	// Reactors is how many run per NUMA node that has any: the device's, where the
	// system says which that is, else each node with processors. Connections go to them
	// in turn, and each has a completion vector of its own as far as the device has
	// them. Default 1.
	Reactors int
	// NoCallerDriving makes waiting goroutines park instead of running the
	// reactor.
	NoCallerDriving bool
	// NoThreadDomains makes queue pairs without one. Else each reactor has a
	// thread domain, where the device has them, so that its driver need not lock:
	// for a driver that does so wrongly, and to measure what it is worth.
	NoThreadDomains bool
	// Spin is how many empty turns are made before sleeping; default
	// reactor.DefaultSpin, negative for none.
	Spin int
	// Policy is what the reactors do while nothing comes: economy (the default), which
	// uses no processor when idle, throughput, which spins for a measured budget, or
	// latency, which spins always, on a processor of its own for each reactor.
	Policy reactor.Policy
	// FlushDelay and FlushBatch are reactor.Config's: how long sends may be held back that
	// are fewer than a doorbell is worth, while others of their connection are under
	// way; default 0, none.
	FlushDelay time.Duration
	FlushBatch int
	// CQEntries is the capacity of a reactor's completion queues: connections that do
	// not fit are refused. By default they begin with reactor.DefaultCQEntries and
	// grow with the connections, up to what the device has.
	CQEntries int
	// Memory describes the pools.
	Memory MemoryConfig
	// ConnectTimeout bounds a whole attempt to connect, from Dial, or from the
	// acceptance of a request, to ESTABLISHED; default DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Handlers is how many handlers that may block run at once (see
	// Runtime.Handle); default DefaultHandlers.
	Handlers int
	// Conn describes connections unless Dial or Listen says otherwise.
	Conn Options
	// OnPanic takes the panics of the program's own code that the runtime calls: sinks,
	// callbacks (Then, Map), handlers (Handle), functions of After and WatchDevice. It is
	// called with each on a goroutine of its own. If it was the sink of a connection's
	// operation or message, that connection fails with the *PanicError as its cause; all
	// else goes on. Default: the panic ends the program, also where it happens on a
	// goroutine of the program's that drives a reactor and would recover it.
	OnPanic func(*PanicError)

	// grace is closeGrace, or what a test has the patience for.
	grace time.Duration
	// stepped and now make a runtime without goroutines, driven by Step, for
	// simulations.
	stepped bool
	now     func() time.Time
}

// PanicError is a panic of the program's own code that the runtime called.
type PanicError = reactor.PanicError

// Options describe connections. The zero value works.
type Options struct {
	// Raw leaves receives to the caller; see the package comment. The peer need not
	// be a runtime then: any program of librdmacm's will do.
	Raw bool
	// Bare has PrivateData of a raw connection go as it is, without the hello that
	// runtimes put in front of it, and the peer's come as it is: for peers that are
	// no runtime and read it.
	Bare bool
	// SendDepth is how many operations may be outstanding; default
	// DefaultSendDepth.
	SendDepth int
	// RecvCredits is how many receives are kept posted for the peer (managed),
	// or may be posted (raw); default DefaultRecvCredits.
	RecvCredits int
	// MessageSize is the largest message received, in bytes; default
	// DefaultMessageSize, or less where the port carries less. The peer is told.
	// With a header of 16 bytes it must fit the port's largest message.
	MessageSize int
	// MaxSGE is how many pieces a gathered or scattered operation may have;
	// default DefaultMaxSGE.
	MaxSGE int
	// Inline is up to how many bytes a SEND or WRITE carries in the request itself, copied
	// when it is posted, so that the device need not fetch them; with a message's
	// header, and of a WRITE of one piece. Default DefaultInline, -1: never. Memory of
	// another device, on demand or zero-based it always fetches; any other the
	// processor reads.
	Inline int
	// Shared is where a raw connection takes its receives from, instead of from
	// RecvCredits of its own: one of the same runtime, not closed; default nil.
	Shared *SharedRecv
	// PeerTimeout bounds every operation: when none of a connection has completed
	// for so long the connection fails with ErrPeerTimeout, and they end. It holds
	// for this end, whatever the peer's options are. Where a
	// queue pair's own timeout and retries take longer, 4 times what they take is the
	// bound, and a transfer of more than 8 MiB for each second of it has that
	// second for each 8 MiB, and n times that while n connections of its reactor have
	// operations under way, because they share the wire. Who else fills a wire, of the
	// peer's say, is not known: where that leaves a reactor less than 8 MiB a second,
	// large transfers need a longer PeerTimeout. A raw connection whose peer posts no
	// receive counts as not answered. Default DefaultPeerTimeout; negative: only the
	// device gives up.
	PeerTimeout time.Duration
	// KeepAlive is after how much silence of the peer it is asked whether it is
	// there, so that a connection that only waits for messages ends too: with a WRITE of no
	// bytes, which costs an idle connection one packet each way in that time and
	// which the peer's program does not see. A lost peer is noticed within KeepAlive and
	// the bound of PeerTimeout. Default PeerTimeout; negative: never.
	KeepAlive time.Duration
	// Recorder is of how many operations that ended the connection keeps what they were,
	// when each was started, posted and polled, and how it ended: see Conn.Recorded and
	// Runtime.Stuck. Default 0: of none, which costs nothing; negative: none, whatever
	// the runtime's options say. It costs three readings of the clock for an operation alone,
	// and some 100 bytes for each that is kept or can be out.
	Recorder int
	// Backlog is how many peers a listener has at most that nobody has accepted yet: their
	// requests, handshakes and established connections; see Listener. Of these up to Backlog
	// have what a connection has, by default half a MiB of receives, so that 128 may have 66
	// MiB. Half of it may be handshakes that are not finished, and an eighth those of one
	// address, each at least 1. It is for listeners alone. Default DefaultBacklog.
	Backlog int
	// PrivateData goes to the peer with the request or the acceptance: at most
	// MaxDialData or MaxAcceptData bytes; Bare, verbs.MaxPrivateConnect or
	// verbs.MaxPrivateAccept. It is copied.
	PrivateData []byte

	// kind is the type of the queue pair: RC by default (PlainOptions.Type).
	kind verbs.QPType
}

func (c Config) validate() (Config, error) {
	c.Reactors = orDefault(c.Reactors, 1)
	c.Handlers = orDefault(c.Handlers, DefaultHandlers)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = DefaultConnectTimeout
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.grace == 0 {
		c.grace = closeGrace
	}
	switch {
	case c.Reactors < 1 || c.Reactors > maxReactors:
		return c, fmt.Errorf("%w: Config.Reactors is %d, want 1 to %d", ErrConfig, c.Reactors, maxReactors)
	case c.Handlers < 1:
		return c, fmt.Errorf("%w: Config.Handlers is %d, want at least 1", ErrConfig, c.Handlers)
	case c.CQEntries < 0 || c.CQEntries == 1 || c.CQEntries > maxCQEntries:
		return c, fmt.Errorf("%w: Config.CQEntries is %d, want 2 to %d", ErrConfig, c.CQEntries, maxCQEntries)
	case c.ConnectTimeout < 0:
		return c, fmt.Errorf("%w: Config.ConnectTimeout is %v, want more than 0", ErrConfig, c.ConnectTimeout)
	}
	if c.stepped && c.Conn.KeepAlive == 0 { // a simulation comes to rest unless it asks for this
		c.Conn.KeepAlive = -1
	}
	var err error
	c.Conn, err = c.Conn.validate()
	return c, err
}

func (o Options) validate() (Options, error) {
	o.SendDepth = orDefault(o.SendDepth, DefaultSendDepth)
	o.RecvCredits = orDefault(o.RecvCredits, DefaultRecvCredits)
	o.MessageSize = orDefault(o.MessageSize, DefaultMessageSize)
	o.MaxSGE = orDefault(o.MaxSGE, DefaultMaxSGE)
	o.PeerTimeout = orDefault(o.PeerTimeout, DefaultPeerTimeout)
	o.Backlog = orDefault(o.Backlog, DefaultBacklog)
	if o.Inline = orDefault(o.Inline, DefaultInline); o.Inline < 0 {
		o.Inline = 0
	}
	o.Recorder = max(o.Recorder, 0)
	switch {
	case o.SendDepth < 1 || o.SendDepth > maxSends:
		return o, fmt.Errorf("%w: Options.SendDepth is %d, want 1 to %d", ErrConfig, o.SendDepth, maxSends)
	case o.RecvCredits < 1 || o.RecvCredits > maxCredits:
		return o, fmt.Errorf("%w: Options.RecvCredits is %d, want 1 to %d", ErrConfig, o.RecvCredits, maxCredits)
	case o.MessageSize < minMessageSize || o.MessageSize > 1<<30:
		return o, fmt.Errorf("%w: Options.MessageSize is %d, want %d to %d", ErrConfig, o.MessageSize, minMessageSize, 1<<30)
	case o.MaxSGE < 1 || o.MaxSGE > maxPieces:
		return o, fmt.Errorf("%w: Options.MaxSGE is %d, want 1 to %d", ErrConfig, o.MaxSGE, maxPieces)
	case o.PeerTimeout > 0 && o.PeerTimeout < minPeerTimeout || o.KeepAlive > 0 && o.KeepAlive < minPeerTimeout:
		return o, fmt.Errorf("%w: Options.PeerTimeout is %v and KeepAlive %v, want at least %v, or less than 0 for none", ErrConfig, o.PeerTimeout, o.KeepAlive, minPeerTimeout)
	case o.Backlog < 1 || o.Backlog > maxBacklog:
		return o, fmt.Errorf("%w: Options.Backlog is %d, want 1 to %d", ErrConfig, o.Backlog, maxBacklog)
	case o.Recorder > maxRecorder:
		return o, fmt.Errorf("%w: Options.Recorder is %d, want at most %d", ErrConfig, o.Recorder, maxRecorder)
	case (o.Shared != nil || o.Bare) && !o.Raw:
		return o, fmt.Errorf("%w: Options.Shared and Bare are for raw connections", ErrConfig)
	case o.Inline > maxInline:
		return o, fmt.Errorf("%w: Options.Inline is %d, want at most %d", ErrConfig, o.Inline, maxInline)
	}
	return o, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
