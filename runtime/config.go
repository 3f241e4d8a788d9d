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

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
