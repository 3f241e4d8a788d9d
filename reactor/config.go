package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Config and QueueConfig.
const (
	DefaultCQEntries   = 8192
	DefaultPollBatch   = 64
	DefaultSpin        = 64
	DefaultSendDepth   = 128
	DefaultRecvDepth   = 128
	DefaultMaxSGE      = 4
	DefaultInline      = 64
	DefaultSignalEvery = 32
	// DefaultFlushBatch is where the doorbell's share of a request is small: a crossing
	// with 16 of them costs hardly more than with one.
	DefaultFlushBatch = 16

	maxDepth   = 1<<slotBits - 2 // slots are numbered in the wr_id, sends and receives together
	maxBatch   = 4096
	maxSpin    = 1 << 20
	maxSGEs    = 64
	maxInlines = 1 << 14

	maxFlushDelay = time.Millisecond // far above what a doorbell costs, far below what a peer is given

	maxRecorder = 1 << 20 // a hundred megabytes
)

// Config describes a reactor. The zero value of everything but Context works.
type Config struct {
	// Context is the open device. The reactor does not close it.
	Context verbs.Context
	// CQEntries is the capacity of each of the two completion queues; queues that do
	// not fit are refused. By default they have DefaultCQEntries and grow, as queues
	// are admitted, up to what the device has.
	CQEntries int
	// CompVector is the completion vector of the queues; default 0.
	CompVector int
	// PollBatch is how many completions one poll takes; default DefaultPollBatch.
	PollBatch int
	// Spin is how many empty turns are made before sleeping or parking while
	// work is outstanding; default DefaultSpin, negative for none.
	Spin int
	// Policy is what is done while nothing comes; default PolicyEconomy. Spin is
	// for that one. A stepped reactor has none.
	Policy Policy
	// FlushDelay is how long sends may be held back that are too few to be worth a
	// doorbell, behind others of their queue that the device has (post_delay.go); default
	// 0: none are. FlushBatch is how many are enough; default DefaultFlushBatch.
	FlushDelay time.Duration
	FlushBatch int
	// NoCallerDriving makes waiting goroutines always park.
	NoCallerDriving bool
	// Node is the NUMA node of the reactor's memory, counted from 1; 0 binds
	// nothing.
	Node int
	// Recheck is how often completion queues are looked at though no event came;
	// default DefaultRecheck, negative: never. Never when stepped, which polls
	// every Step.
	Recheck time.Duration
	// OnPanic takes the panics of user code that the reactor calls: sinks, callbacks of
	// futures, functions given to Tell, Callback, Defer, Do, After and Watch. It is called
	// with each on a goroutine of its own, without the turn. If it was an operation's sink,
	// the queue fails with the panic as its cause; all else goes on. Default: the panic ends
	// the program, on any goroutine, and callers further up the stack cannot recover it.
	OnPanic func(*PanicError)
	// Stepped makes a reactor without a goroutine: whoever owns it calls Step.
	Stepped bool
	// Now is the clock of timers; default time.Now. A stepped reactor is given a
	// virtual one.
	Now func() time.Time

	real     bool // Now is the machine's
	fixedCQs bool // CQEntries was chosen
}

func (c Config) validate() (Config, error) {
	if c.Context == nil {
		return c, fmt.Errorf("%w: Config.Context is nil", ErrConfig)
	}
	c.fixedCQs = c.CQEntries != 0
	c.CQEntries = orDefault(c.CQEntries, DefaultCQEntries)
	c.PollBatch = orDefault(c.PollBatch, DefaultPollBatch)
	if c.Spin = orDefault(c.Spin, DefaultSpin); c.Spin < 0 {
		c.Spin = 0
	}
	if c.Recheck == 0 {
		c.Recheck = DefaultRecheck
	}
	if c.Now == nil {
		c.Now, c.real = time.Now, !c.Stepped
	}
	c.FlushBatch = orDefault(c.FlushBatch, DefaultFlushBatch)
	switch {
	case c.FlushDelay < 0 || c.FlushDelay > maxFlushDelay:
		return c, fmt.Errorf("%w: Config.FlushDelay is %v, want 0 to %v", ErrConfig, c.FlushDelay, maxFlushDelay)
	case c.FlushBatch < 1:
		return c, fmt.Errorf("%w: Config.FlushBatch is %d, want at least 1", ErrConfig, c.FlushBatch)
	case c.CQEntries < 2:
		return c, fmt.Errorf("%w: Config.CQEntries is %d, want at least 2", ErrConfig, c.CQEntries)
	case c.PollBatch < 1 || c.PollBatch > maxBatch:
		return c, fmt.Errorf("%w: Config.PollBatch is %d, want 1 to %d", ErrConfig, c.PollBatch, maxBatch)
	case c.Policy >= policies:
		return c, fmt.Errorf("%w: Config.Policy is %d, want less than %d", ErrConfig, c.Policy, policies)
	case c.Spin > maxSpin:
		return c, fmt.Errorf("%w: Config.Spin is %d, want at most %d", ErrConfig, c.Spin, maxSpin)
	}
	return c, nil
}

// QueueConfig describes one queue. The zero value of everything but PD works.
type QueueConfig struct {
	// PD is the protection domain; the queue registers its result words there.
	PD verbs.PD
	// Type is the type of the queue pair: RC (the default), UC or UD. A UD queue
	// has every send signaled: the request that retires others elsewhere (a write
	// of nothing) does not exist there.
	Type verbs.QPType
	// Shared is where the queue pair takes its receives from instead of from
	// RecvDepth of its own, which must be -1 then.
	Shared *SharedRecv
	// SendDepth and RecvDepth are how many requests may be outstanding;
	// defaults DefaultSendDepth, DefaultRecvDepth. RecvDepth -1: none.
	SendDepth int
	RecvDepth int
	// ControlDepth is how many requests may be outstanding beside SendDepth,
	// for PostControl; default none.
	ControlDepth int
	// MaxSGE is how many elements one request may have; default DefaultMaxSGE.
	MaxSGE int
	// Inline is how many bytes a request may carry in itself, header
	// included; default DefaultInline, -1: none. The device may grant less
	// for inline payload; headers do not depend on that.
	Inline int
	// SignalEvery is after how many unsignaled requests one is signaled in a
	// long list; default the smaller of DefaultSignalEvery and SendDepth/2.
	SignalEvery int
	// Recorder is of how many requests that ended the queue keeps what they were, when
	// they were submitted, posted and polled, and how they ended, for Recorded and
	// Reactor.Stuck; default none. It takes some 100 bytes for each and for each that
	// may be out, and keeps their errors.
	Recorder int

	receiving bool // the queue of a SharedRecv: no sends at all
}

func (c QueueConfig) validate() (QueueConfig, error) {
	if c.PD == nil {
		return c, fmt.Errorf("%w: QueueConfig.PD is nil", ErrConfig)
	}
	if c.Type == 0 {
		c.Type = verbs.QPTRC
	}
	if c.Type == verbs.QPTUD {
		c.SignalEvery = 1
	}
	if c.receiving {
		return c.validateShared()
	}
	c.SendDepth = orDefault(c.SendDepth, DefaultSendDepth)
	if c.RecvDepth = orDefault(c.RecvDepth, DefaultRecvDepth); c.RecvDepth < 0 {
		c.RecvDepth = 0
	}
	c.MaxSGE = orDefault(c.MaxSGE, DefaultMaxSGE)
	if c.Inline = orDefault(c.Inline, DefaultInline); c.Inline < 0 {
		c.Inline = 0
	}
	c.SignalEvery = orDefault(c.SignalEvery, max(1, min(DefaultSignalEvery, c.SendDepth/2)))
	switch {
	case !known(c.Type):
		return c, fmt.Errorf("%w: a queue of type %v", ErrConfig, c.Type)
	case c.Shared != nil && c.RecvDepth != 0:
		return c, fmt.Errorf("%w: RecvDepth %d beside shared receives", ErrConfig, c.RecvDepth)
	case c.SendDepth < 1 || c.ControlDepth < 0 || c.SendDepth > maxDepth || c.ControlDepth > maxDepth || c.RecvDepth > maxDepth || c.sends()+c.RecvDepth > maxDepth:
		return c, fmt.Errorf("%w: SendDepth %d, ControlDepth %d and RecvDepth %d, want SendDepth at least 1 and the sum at most %d",
			ErrConfig, c.SendDepth, c.ControlDepth, c.RecvDepth, maxDepth-1)
	case c.MaxSGE < 1 || c.MaxSGE > maxSGEs:
		return c, fmt.Errorf("%w: MaxSGE is %d, want 1 to %d", ErrConfig, c.MaxSGE, maxSGEs)
	case c.Inline > maxInlines:
		return c, fmt.Errorf("%w: Inline is %d, want at most %d", ErrConfig, c.Inline, maxInlines)
	case c.Recorder < 0 || c.Recorder > maxRecorder:
		return c, fmt.Errorf("%w: Recorder is %d, want 0 to %d", ErrConfig, c.Recorder, maxRecorder)
	case c.SignalEvery < 1 || c.SignalEvery > c.SendDepth:
		return c, fmt.Errorf("%w: SignalEvery is %d, want 1 to SendDepth (%d)", ErrConfig, c.SignalEvery, c.SendDepth)
	}
	return c, nil
}

// sends is how many send slots a queue has: the users', the marker, the
// control requests.
func (c QueueConfig) sends() int {
	if c.receiving {
		return 0
	}
	return c.SendDepth + 1 + c.ControlDepth
}

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}
