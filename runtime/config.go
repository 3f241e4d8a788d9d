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
	// DefaultMessageSize plus the message header fills a block of 8 KiB. One more byte
	// would take a block of 16 KiB for every receive.
	DefaultMessageSize    = 8<<10 - frameSize
	DefaultMaxSGE         = 4
	DefaultInline         = 128
	DefaultConnectTimeout = 5 * time.Second
	DefaultPeerTimeout    = 5 * time.Second
	DefaultBacklog        = 128
	DefaultHandlers       = 64

	minMessageSize = 64
	maxCredits     = 1 << 14
	maxSends       = 1 << 15 // maxSends, maxCredits and the control requests fit a reactor's slot numbers
	maxPieces      = 63      // the usual device limit of 64 elements, less one for the header
	maxInline      = 1 << 13 // more than any device supports
	maxCQEntries   = 1 << 24 // known devices have 4 million
	maxReactors    = 64
	maxBacklog     = 1 << 12          // the type backlog scans it linearly; the kernel's limit is 1024
	maxRecorder    = 1 << 20          // the limit of a reactor
	minPeerTimeout = time.Millisecond // a shorter silence may be a scheduling delay
)

// Config describes a Runtime. The zero value works: it selects the device named by
// VERBENA_DEVICE, else the first device of the software RNIC, and one reactor per NUMA node.
type Config struct {
	// Provider drives the device. The default follows from Device; without Device it is
	// the software RNIC of this process, soft.Default of package verbs/soft.
	Provider verbs.Provider
	// Device is the device name, optionally prefixed with a provider: "ibv:mlx5_0" is a
	// device of libibverbs, "soft:soft1" one of the software RNIC. "ibv:", or an empty
	// name with a Provider, selects the provider's first device with an active port.
	// If Provider and Device are both empty, the environment variable VERBENA_DEVICE
	// (DeviceEnv) names the device. If that is empty too, the device is the first one of
	// the software RNIC.
	Device string
	// Reactors is the number of reactors per NUMA node. They run on the device's node
	// if the system reports it, else on each node with processors. Each connection goes
	// to the next reactor. Each reactor has its own completion vector if the device has
	// enough of them. Default 1.
	Reactors int
	// NoCallerDriving makes waiting goroutines park; they never run the reactor.
	NoCallerDriving bool
	// NoThreadDomains creates queue pairs without a thread domain. By default each
	// reactor has a thread domain, where the device supports them, so that the driver
	// skips its locks. Set it for a driver with broken thread domains, or to measure
	// their effect.
	NoThreadDomains bool
	// Spin is the number of empty passes before a reactor with the economy policy sleeps;
	// default reactor.DefaultSpin, negative for none.
	Spin int
	// Policy selects the behavior of idle reactors: economy (the default) uses no
	// processor when idle, throughput spins for a measured budget, and latency always
	// spins, with one processor per reactor.
	Policy reactor.Policy
	// FlushDelay is the longest time for which sends of a connection may be held back while
	// earlier ones are outstanding; default 0, none. FlushBatch is the number of held sends
	// that ends the delay (see reactor.Config).
	FlushDelay time.Duration
	FlushBatch int
	// CQEntries is the capacity of a reactor's completion queues; connections that do
	// not fit are refused. By default the completion queues start with
	// reactor.DefaultCQEntries and grow with the connections, up to the device's limit.
	CQEntries int
	// Memory describes the buffer pools.
	Memory MemoryConfig
	// ConnectTimeout bounds a connection attempt until ESTABLISHED. It begins with Dial,
	// or when the listener accepts the request. Default DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Handlers is the maximum number of concurrent handlers (see Runtime.Handle), which
	// may block; default DefaultHandlers.
	Handlers int
	// Conn has the default options of connections. DialOptions and ListenOptions override
	// them.
	Conn Options
	// OnPanic receives the panics of user code called by the runtime: sinks, callbacks
	// (Then, Map), handlers (Handle), functions of After and WatchDevice. Each call runs
	// on a new goroutine. If the sink of an operation or message panicked, its connection
	// fails with the *PanicError as its cause; everything else goes on. By default the
	// panic ends the program, and no goroutine can recover it.
	OnPanic func(*PanicError)

	// grace is closeGrace, or a shorter time in tests.
	grace time.Duration
	// stepped and now make a runtime without goroutines, driven by Step, for
	// simulations.
	stepped bool
	now     func() time.Time
}

// PanicError is a panic of user code called by the runtime.
type PanicError = reactor.PanicError

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
	if c.stepped && c.Conn.KeepAlive == 0 { // keep-alives would keep a simulation from becoming idle
		c.Conn.KeepAlive = -1
	}
	var err error
	c.Conn, err = c.Conn.validate()
	return c, err
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
