package runtime

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Config.
const (
	DefaultSendDepth   = 256
	DefaultReadDepth   = 16
	DefaultRecvCredits = 64
	// A message of DefaultMessageSize and its header fill a pool block of 8 KiB. If messages were
	// one byte larger, every receive would take a block of 16 KiB.
	DefaultMessageSize    = 8<<10 - frameSize
	DefaultMaxMessage     = 16 << 20
	DefaultMaxSGE         = 4
	DefaultInline         = 128
	DefaultConnectTimeout = 15 * time.Second // three times what the kernel waits for an answer before it repeats a message
	DefaultPeerTimeout    = 5 * time.Second
	DefaultRetryCount     = 7 // also the maximum
	DefaultBacklog        = 128
	DefaultHandlers       = 64

	minMessageSize = 64               // also the smallest receive size that a peer may offer
	maxCredits     = 1 << 14          // also the largest number of receives that a peer may offer
	maxReadDepth   = 255              // the connection manager's messages have 8 bits for it
	maxSends       = 1 << 15          // half of the 2^16 slots of a queue: receives and control requests take slots, too
	maxPieces      = 63               // the usual device limit of 64 scatter-gather elements, less one for the header
	maxInline      = 1 << 13          // in bytes: more than any device supports
	maxCQEntries   = 1 << 24          // known devices have at most 4 million entries
	maxReactors    = 64               // per NUMA node
	maxBacklog     = 1 << 12          // each new request costs a scan of the backlog
	maxRecorder    = 1 << 20          // package reactor has the same limit
	minPeerTimeout = time.Millisecond // a shorter silence may be a scheduling delay
)

// Config describes a Runtime. The zero value works.
type Config struct {
	// Provider implements the verbs of the device. By default the prefix of the device name selects
	// the provider. For a name without a prefix the provider is the software RNIC of this process:
	// soft.Default of package verbs/soft.
	Provider verbs.Provider
	// Device is the device name, optionally prefixed with a provider: "ibv:mlx5_0" is a
	// device of libibverbs, "soft:soft1" is a device of the software RNIC. A prefix alone
	// ("ibv:") selects the provider's first device with an active port, and so does an empty
	// name if Provider is set. If Provider and Device are both empty, the environment
	// variable VERBENA_DEVICE (DeviceEnv) has the name. If the variable is empty, too, the
	// software RNIC's first device with an active port is selected.
	Device string
	// Reactors is the number of reactors per NUMA node. If the system reports the device's NUMA
	// node, only that node has reactors. Otherwise each NUMA node on which the process may run has
	// reactors. New connections are assigned to the reactors round-robin. Each reactor has its own
	// completion vector if the device has enough vectors. Default 1.
	Reactors int
	// NoCallerDriving makes waiting goroutines park: they never run the reactor.
	NoCallerDriving bool
	// NoThreadDomains creates queue pairs without a thread domain. By default, if the device
	// supports thread domains, each reactor creates its queue pairs in its own thread domain, so
	// the device's driver library takes no locks for these queue pairs. Set NoThreadDomains for a
	// driver library whose thread domains are broken, or to measure the effect of thread domains.
	NoThreadDomains bool
	// Spin applies only to reactor.PolicyEconomy. If a waiting goroutine runs the reactor, it parks
	// after Spin polls in a row that find no work. The reactor's own goroutine sleeps after Spin
	// such polls if sends are outstanding, and otherwise after the first such poll. Default
	// reactor.DefaultSpin; a negative value disables spinning.
	Spin int
	// Policy selects how reactors wait when they are idle. With reactor.PolicyEconomy, the default,
	// an idle reactor uses no processor. With reactor.PolicyThroughput, a reactor spins for a
	// limited time before it sleeps. With reactor.PolicyLatency, each reactor always spins, and
	// uses one processor.
	Policy reactor.Policy
	// FlushDelay is the longest time for which a connection may hold back sends, so that more sends
	// share a doorbell. A connection holds back sends only while earlier sends are outstanding. As
	// soon as it has FlushBatch unposted sends, it posts them without a delay (see reactor.Config).
	// With FlushDelay 0, the default, no send is held back. The default of FlushBatch is
	// reactor.DefaultFlushBatch.
	FlushDelay time.Duration
	FlushBatch int
	// CQEntries is the capacity of each completion queue of a reactor. If a completion queue has no
	// room for one more connection, Dial fails with ErrTooMany, and a listener refuses the request.
	// By default the capacity begins with reactor.DefaultCQEntries, and grows with the number of
	// connections up to the device's limit.
	CQEntries int
	// Memory describes the buffer pools.
	Memory MemoryConfig
	// ConnectTimeout is the longest time from the start of a connection attempt to ESTABLISHED. An
	// attempt starts when Dial has looked up the host name, or when a listener begins to accept a
	// request. Pending.Connect starts this time again. Linux's connection manager sends a message that
	// is not answered again after 4.3 s and what the path takes (CMA_CM_RESPONSE_TIMEOUT of cma.c), so
	// a shorter time makes a lost packet a failed Dial. Default DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Handlers is the maximum number of concurrent handlers (see Runtime.Handle), at most 32768; default
	// DefaultHandlers. Handlers may block.
	Handlers int
	// Conn has the default options of connections. DialOptions and ListenOptions override
	// them.
	Conn Options
	// OnPanic receives the panics of user code called by the runtime: sinks, callbacks (Then, Map),
	// handlers (Handle), Options.Admit, and functions given to After and WatchDevice. Each call of
	// OnPanic runs on a new goroutine. If the sink of an operation or message panicked, the
	// connection of this operation or message fails with the *PanicError as the cause; everything
	// else goes on. By default the panic ends the program, and no goroutine can recover the panic.
	OnPanic func(*PanicError)

	// grace is how long Runtime.Close continues after the end of its context: closeGrace, or
	// less in tests.
	grace time.Duration
	// stepped is set for simulations: the runtime has no goroutines, and its reactors run
	// only in calls of Step.
	stepped bool
	now     func() time.Time // the clock; default time.Now
	// lookupIP returns the addresses of a host; default net.DefaultResolver.LookupNetIP.
	lookupIP func(ctx context.Context, network, host string) ([]netip.Addr, error)
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
	if c.lookupIP == nil {
		c.lookupIP = net.DefaultResolver.LookupNetIP
	}
	if c.grace == 0 {
		c.grace = closeGrace
	}
	switch {
	case c.Reactors < 1 || c.Reactors > maxReactors:
		return c, fmt.Errorf("%w: Config.Reactors is %d, want 1 to %d", ErrConfig, c.Reactors, maxReactors)
	case c.Handlers < 1 || c.Handlers > exec.MaxWorkers:
		return c, fmt.Errorf("%w: Config.Handlers is %d, want 1 to %d", ErrConfig, c.Handlers, exec.MaxWorkers)
	case c.CQEntries < 0 || c.CQEntries == 1 || c.CQEntries > maxCQEntries:
		return c, fmt.Errorf("%w: Config.CQEntries is %d, want 2 to %d", ErrConfig, c.CQEntries, maxCQEntries)
	case c.ConnectTimeout < 0:
		return c, fmt.Errorf("%w: Config.ConnectTimeout is %v, want more than 0", ErrConfig, c.ConnectTimeout)
	}
	if c.stepped && c.Conn.KeepAlive == 0 { // no keep-alive probes: with them a simulation would never become idle
		c.Conn.KeepAlive = -1
	}
	var err error
	c.Conn.demand(reactor.Capacities{})
	c.Conn, err = c.Conn.validate()
	return c, err
}

func orDefault[T int | uint8 | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
