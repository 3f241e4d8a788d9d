package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Config.
const (
	DefaultSendDepth      = 256
	DefaultRecvCredits    = 64
	DefaultMessageSize    = 8 << 10
	DefaultMaxSGE         = 4
	DefaultInline         = 128
	DefaultConnectTimeout = 5 * time.Second
	DefaultBacklog        = 128
	DefaultHandlers       = 64

	minMessageSize = 64
	maxCredits     = 1 << 14
	maxReactors    = 64
)

// Config describes a Runtime. The zero value works: the software RNIC's first
// device, one reactor per NUMA node.
type Config struct {
	// Provider drives the device; default the software RNIC of this process.
	Provider verbs.Provider
	// Device is its name; default the provider's first.
	Device string
	// Reactors is how many run per NUMA node; default 1.
	Reactors int
	// NoCallerDriving makes waiting goroutines park instead of running the
	// reactor.
	NoCallerDriving bool
	// Spin is how many empty turns are made before sleeping; default
	// reactor.DefaultSpin, negative for none.
	Spin int
	// CQEntries is the capacity of a reactor's completion queues; default
	// reactor.DefaultCQEntries.
	CQEntries int
	// Memory describes the pools.
	Memory MemoryConfig
	// ConnectTimeout bounds each step of connecting; default
	// DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Handlers is how many handlers that may block run at once (see
	// Runtime.Handle); default DefaultHandlers.
	Handlers int
	// Conn describes connections unless Dial or Listen says otherwise.
	Conn Options

	// stepped and now make a runtime without goroutines, driven by Step, for
	// simulations.
	stepped bool
	now     func() time.Time
}

// Options describe connections. The zero value works.
type Options struct {
	// Raw leaves receives to the caller; see the package comment.
	Raw bool
	// SendDepth is how many operations may be outstanding; default
	// DefaultSendDepth.
	SendDepth int
	// RecvCredits is how many receives are kept posted for the peer (managed),
	// or may be posted (raw); default DefaultRecvCredits.
	RecvCredits int
	// MessageSize is the largest message received, in bytes; default
	// DefaultMessageSize. The peer is told.
	MessageSize int
	// MaxSGE is how many pieces a gathered or scattered operation may have;
	// default DefaultMaxSGE.
	MaxSGE int
	// Inline is up to how many bytes SendBytes copies into the request itself;
	// default DefaultInline, -1: never.
	Inline int
	// PrivateData goes to the peer with the request or the acceptance: at most
	// MaxDialData or MaxAcceptData bytes.
	PrivateData []byte
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
	switch {
	case c.Reactors < 1 || c.Reactors > maxReactors:
		return c, fmt.Errorf("%w: Config.Reactors is %d, want 1 to %d", ErrConfig, c.Reactors, maxReactors)
	case c.Handlers < 1:
		return c, fmt.Errorf("%w: Config.Handlers is %d, want at least 1", ErrConfig, c.Handlers)
	case c.ConnectTimeout < 0:
		return c, fmt.Errorf("%w: Config.ConnectTimeout is %v, want more than 0", ErrConfig, c.ConnectTimeout)
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
	if o.Inline = orDefault(o.Inline, DefaultInline); o.Inline < 0 {
		o.Inline = 0
	}
	switch {
	case o.SendDepth < 1:
		return o, fmt.Errorf("%w: Options.SendDepth is %d, want at least 1", ErrConfig, o.SendDepth)
	case o.RecvCredits < 1 || o.RecvCredits > maxCredits:
		return o, fmt.Errorf("%w: Options.RecvCredits is %d, want 1 to %d", ErrConfig, o.RecvCredits, maxCredits)
	case o.MessageSize < minMessageSize || o.MessageSize > 1<<30:
		return o, fmt.Errorf("%w: Options.MessageSize is %d, want %d to %d", ErrConfig, o.MessageSize, minMessageSize, 1<<30)
	case o.MaxSGE < 1:
		return o, fmt.Errorf("%w: Options.MaxSGE is %d, want at least 1", ErrConfig, o.MaxSGE)
	}
	return o, nil
}

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}
