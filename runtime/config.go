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
	// A message of DefaultMessageSize and its header fill a pool block of 8 KiB. With one
	// byte more, every receive would take a block of 16 KiB.
	DefaultMessageSize    = 8<<10 - frameSize
	DefaultMaxSGE         = 4
	DefaultInline         = 128
	DefaultConnectTimeout = 5 * time.Second
	DefaultPeerTimeout    = 5 * time.Second
	DefaultRetryCount     = 7 // also the maximum
	DefaultBacklog        = 128
	DefaultHandlers       = 64

	minMessageSize = 64
	maxCredits     = 1 << 14
	maxSends       = 1 << 15 // a queue has 2^16 slots for sends, receives and control requests together
	maxPieces      = 63      // the usual device limit of 64 scatter-gather elements, less one for the header
	maxInline      = 1 << 13 // more than any device supports
	maxCQEntries   = 1 << 24 // known devices have at most 4 million
	maxReactors    = 64
	maxBacklog     = 1 << 12          // each request costs a scan of the backlog; the kernel's limit is 1024
	maxRecorder    = 1 << 20          // package reactor has the same limit
	minPeerTimeout = time.Millisecond // a shorter silence may be a scheduling delay
)

// Config describes a Runtime. The zero value works.
type Config struct {
	// Provider implements the verbs of the device. By default the prefix of the device name
	// selects the provider; for a name without a prefix the provider is soft.Default of
	// package verbs/soft, the software RNIC of this process.
	Provider verbs.Provider
	// Device is the device name, optionally prefixed with a provider: "ibv:mlx5_0" is a
	// device of libibverbs, "soft:soft1" is a device of the software RNIC. A prefix alone
	// ("ibv:") selects the provider's first device with an active port, and so does an empty
	// name if Provider is set. If Provider and Device are both empty, the environment
	// variable VERBENA_DEVICE (DeviceEnv) has the name. If the variable is empty, too, the
	// software RNIC's first device with an active port is selected.
	Device string
	// Reactors is the number of reactors per NUMA node. If the system reports the device's
	// node, only that node has reactors. Otherwise each node on which the process may run has
	// reactors. New connections are assigned to the reactors round-robin. Each reactor has its
	// own completion vector if the device has enough vectors. Default 1.
	Reactors int
	// NoCallerDriving makes waiting goroutines park: they never run the reactor.
	NoCallerDriving bool
	// NoThreadDomains creates queue pairs without a thread domain. By default each
	// reactor has a thread domain, if the device supports thread domains; the driver then
	// takes no locks. Set NoThreadDomains for a driver whose thread domains are broken, or
	// to measure their effect.
	NoThreadDomains bool
	// Spin applies to the economy policy. After Spin polls in a row that find no work, a reactor
	// sleeps, and a waiting goroutine stops running the reactor. Default reactor.DefaultSpin; a
	// negative value disables spinning.
	Spin int
	// Policy selects the behavior of idle reactors. Economy (the default) uses no processor
	// when idle. Throughput spins for a limited time before it sleeps. Latency always spins
	// and uses one processor per reactor.
	Policy reactor.Policy
	// FlushDelay is the longest time for which a connection may hold back sends, so that more
	// sends share a doorbell. It holds back sends only while earlier sends are outstanding. A
	// connection with FlushBatch unposted sends posts them without a delay (see reactor.Config).
	// With FlushDelay 0, the default, no send is held back. The default of FlushBatch is
	// reactor.DefaultFlushBatch.
	FlushDelay time.Duration
	FlushBatch int
	// CQEntries is the capacity of each completion queue of a reactor. If the capacity is too
	// small for one more connection, that connection cannot be made. By default the capacity
	// begins with reactor.DefaultCQEntries, and grows with the number of connections up to the
	// device's limit.
	CQEntries int
	// Memory describes the buffer pools.
	Memory MemoryConfig
	// ConnectTimeout is the longest time from the start of a connection attempt to
	// ESTABLISHED. An attempt starts with Dial, or when the listener begins to answer a
	// request. Default DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Handlers is the maximum number of concurrent handlers (see Runtime.Handle); default
	// DefaultHandlers. Handlers may block.
	Handlers int
	// Conn has the default options of connections. DialOptions and ListenOptions override
	// them.
	Conn Options
	// OnPanic receives the panics of user code called by the runtime: sinks, callbacks
	// (Then, Map), handlers (Handle), Options.Admit, and functions given to After and
	// WatchDevice. Each call of OnPanic runs on a new goroutine. If the sink of an operation
	// or message panicked, its connection fails with the *PanicError as the cause; everything
	// else goes on. By default the panic ends the program, and no goroutine can recover it.
	OnPanic func(*PanicError)

	// grace is how long Runtime.Close continues after the end of its context: closeGrace, or
	// less in tests.
	grace time.Duration
	// stepped is set for simulations: the runtime has no goroutines, and its reactors run
	// only in calls of Step.
	stepped bool
	now     func() time.Time // the clock; default time.Now
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
	if c.stepped && c.Conn.KeepAlive == 0 { // with keep-alive probes a simulation never becomes idle
		c.Conn.KeepAlive = -1
	}
	var err error
	c.Conn, err = c.Conn.validate()
	return c, err
}

func orDefault[T int | uint8 | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
