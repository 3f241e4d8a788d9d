package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Config and QueueConfig.
const (
	DefaultCQEntries   = 8191 // a power of two less one; see doubled
	DefaultPollBatch   = 64
	DefaultSpin        = 64
	DefaultSendDepth   = 128
	DefaultRecvDepth   = 128
	DefaultMaxSGE      = 4
	DefaultInline      = 64
	DefaultSignalEvery = 32
	// DefaultFlushBatch is 16: posting 16 requests in one list costs hardly more than posting one
	// request, so each request bears a small part of the doorbell's cost.
	DefaultFlushBatch = 16

	maxDepth   = 1<<slotBits - 2 // the largest number of slots of a queue: a slot number has slotBits bits in the wr_id
	maxBatch   = 4096
	maxSpin    = 1 << 20
	maxSGEs    = 64
	maxInlines = 1 << 14

	maxFlushDelay = time.Millisecond // much longer than a doorbell takes, much shorter than a usual PeerLimit.Bound

	maxRecorder = 1 << 20 // entries: about a hundred megabytes
)

// Config describes a reactor. Context must be set; every other field may be zero.
type Config struct {
	// Context is the open device. The reactor does not close it.
	Context verbs.Context
	// CQEntries is the capacity of each of the two completion queues. Queue.Admit fails if the
	// Queue needs more entries than are left. With 0, the default, the completion queues begin with
	// DefaultCQEntries entries and grow with the admitted Queues, up to the device's limit. Beyond it, and
	// on devices that cannot resize completion queues, the reactor makes further ones. A device may grant
	// more entries than it is asked for; the reactor uses them.
	CQEntries int
	// CompVector is the completion vector of the completion queues; default 0.
	CompVector int
	// PollBatch is the largest number of completions that one poll takes; default
	// DefaultPollBatch.
	PollBatch int
	// Spin is a number of empty passes in a row. After Spin empty passes, a driver (a waiting
	// goroutine that runs passes) parks, and the loop sleeps. If no send is outstanding, the loop
	// sleeps after its first empty pass. On the software RNIC drivers then park, too, while only this
	// process has traffic, because a message wakes them at once. The default is DefaultSpin; a negative
	// value means 0.
	Spin int
	// Policy is how the reactor waits while it is idle; default PolicyEconomy. The other policies
	// ignore Spin. A stepped reactor ignores Policy.
	Policy Policy
	// FlushDelay is the longest time for which a queue holds sends back, so that more sends share a
	// doorbell. Sends are held back only while earlier sends of the queue are outstanding
	// (post_delay.go). With 0, the default, no sends are held back.
	FlushDelay time.Duration
	// FlushBatch limits how many sends a queue holds back. A queue with FlushBatch unposted sends
	// posts them in the next pass. Default DefaultFlushBatch.
	FlushBatch int
	// NoCallerDriving makes waiting goroutines park: they never run passes.
	NoCallerDriving bool
	// Node selects the NUMA node of the reactor's memory: n+1 stands for node n of the system. With
	// 0, the default, the memory is bound to no node.
	Node int
	// Recheck is the interval at which completion queues are polled even without an event. Default
	// DefaultRecheck; negative: never. A stepped reactor ignores Recheck, because every Step polls.
	Recheck time.Duration
	// OnPanic receives the panics of user code that the reactor calls: sinks, callbacks of futures,
	// functions given to Notify, Callback, Defer, Do, After and Watch. OnPanic runs on a new
	// goroutine for each panic, without the turn. If an operation's sink panicked, the operation's
	// queue fails with the panic as its cause; everything else goes on. If OnPanic is nil, the
	// default, the panic ends the program, and no caller can recover the panic.
	OnPanic func(*PanicError)
	// Stepped makes a reactor without goroutines: the reactor runs only when its owner calls Step.
	Stepped bool
	// Now is the clock of the timers; default time.Now. A stepped reactor may have a virtual clock.
	Now func() time.Time

	real     bool // Now is time.Now, and the reactor is not stepped
	fixedCQs bool // the user set CQEntries
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

// QueueConfig describes one queue. PD must be set; every other field may be zero.
type QueueConfig struct {
	// PD is the protection domain in which the memory of the queue's requests is registered.
	PD verbs.PD
	// Type is the type of the queue pair: RC (the default), UC or UD. To retire unsignaled sends,
	// the reactor may need the marker, a zero-length WRITE (post_settle.go). UD has no WRITEs, so
	// on a UD queue every send is signaled.
	Type verbs.QPType
	// Shared, if not nil, supplies the queue pair's receives. RecvDepth must then be -1.
	Shared *SharedRecv
	// SendDepth and RecvDepth limit the sends and the receives that are submitted and not
	// completed. The defaults are DefaultSendDepth and DefaultRecvDepth. With RecvDepth -1 the
	// queue has no receives.
	SendDepth int
	RecvDepth int
	// ControlDepth limits the requests of PostControl that are submitted and not completed.
	// SendDepth does not include these requests. Default 0.
	ControlDepth int
	// MaxSGE is the largest number of scatter-gather elements of one request; default DefaultMaxSGE.
	// RecvSGE is that of a receive; default MaxSGE.
	MaxSGE  int
	RecvSGE int
	// Inline is the largest number of inline bytes of a request: Payload.Header and Payload.Inline
	// together. Default DefaultInline; -1: none. The device may have fewer bytes (see Least); Queue.Inline
	// returns the granted number. If the data of a request is in SGEs,
	// the header is one more SGE, not inline. Its limit is then Inline, whatever the device grants.
	Inline int
	// Least limits what Prepare does where the device has less than the fields above say: it lowers them
	// (Inline as far as the device carries it), but none below that of Least; then it fails, and says what
	// the device has. With nil, the fields that are set are not lowered, and defaults are.
	Least *Capacities
	// Windows permits BIND_MW and LOCAL_INV; see verbs.QPInitAttr. Default: the queue refuses them.
	Windows bool
	// SignalEvery is the interval of signaled requests in a long list: with n, every n-th request
	// is signaled. Default min(DefaultSignalEvery, SendDepth/2), at least 1.
	SignalEvery int
	// Recorder is how many completed operations the flight recorder keeps, for Recorded and
	// Reactor.Stuck. The default is none. An entry holds the request, the times of submission,
	// posting and polling, and the result. The recorder has additional entries, one for each slot of
	// the queue. So when the queue fails and its requests are flushed, the entries of the requests
	// that ended before the flush are still there: the last ones, as many as Recorder says. An entry takes some 100 bytes and keeps its error alive.
	Recorder int

	// deviceInline is the part of Inline that the queue pair is asked for; the slots have Inline bytes.
	deviceInline int
	receiving    bool // this is the queue of a SharedRecv, which has no sends
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
	if c.Least == nil {
		c.Least = &Capacities{SendDepth: c.SendDepth, RecvDepth: c.RecvDepth, MaxSGE: c.MaxSGE, RecvSGE: orDefault(c.RecvSGE, c.MaxSGE), Inline: c.Inline}
	}
	if c.receiving {
		return c.validateShared()
	}
	c.SendDepth = orDefault(c.SendDepth, DefaultSendDepth)
	if c.RecvDepth = orDefault(c.RecvDepth, DefaultRecvDepth); c.RecvDepth < 0 {
		c.RecvDepth = 0
	}
	c.MaxSGE = orDefault(c.MaxSGE, DefaultMaxSGE)
	c.RecvSGE = orDefault(c.RecvSGE, c.MaxSGE)
	if c.Inline = orDefault(c.Inline, DefaultInline); c.Inline < 0 {
		c.Inline = 0
	}
	c.deviceInline = c.Inline
	c.SignalEvery = orDefault(c.SignalEvery, max(1, min(DefaultSignalEvery, c.SendDepth/2)))
	switch {
	case !known(c.Type):
		return c, fmt.Errorf("%w: QueueConfig.Type is %v, want RC, UC, UD or XRC_SEND", ErrConfig, c.Type)
	case c.Type == verbs.QPTXRCSend && (c.RecvDepth != 0 || c.Shared != nil):
		return c, fmt.Errorf("%w: RecvDepth is %d and Shared %v, want -1 and nil because an XRC_SEND queue receives nothing", ErrConfig, c.RecvDepth, c.Shared != nil)
	case c.Shared != nil && c.RecvDepth != 0:
		return c, fmt.Errorf("%w: RecvDepth is %d, want -1 because Shared is set", ErrConfig, c.RecvDepth)
	case c.SendDepth < 1 || c.ControlDepth < 0 || c.SendDepth > maxDepth || c.ControlDepth > maxDepth || c.RecvDepth > maxDepth || c.slots() > maxDepth:
		return c, fmt.Errorf("%w: SendDepth %d, ControlDepth %d and RecvDepth %d, want SendDepth at least 1 and the sum at most %d",
			ErrConfig, c.SendDepth, c.ControlDepth, c.RecvDepth, maxDepth-chunkSlots)
	case c.MaxSGE < 1 || c.MaxSGE > maxSGEs || c.RecvSGE < 1 || c.RecvSGE > maxSGEs:
		return c, fmt.Errorf("%w: MaxSGE is %d and RecvSGE %d, want 1 to %d", ErrConfig, c.MaxSGE, c.RecvSGE, maxSGEs)
	case c.Inline > maxInlines:
		return c, fmt.Errorf("%w: Inline is %d, want at most %d", ErrConfig, c.Inline, maxInlines)
	case c.Recorder < 0 || c.Recorder > maxRecorder:
		return c, fmt.Errorf("%w: Recorder is %d, want 0 to %d", ErrConfig, c.Recorder, maxRecorder)
	case c.SignalEvery < 1 || c.SignalEvery > c.SendDepth:
		return c, fmt.Errorf("%w: SignalEvery is %d, want 1 to SendDepth (%d)", ErrConfig, c.SignalEvery, c.SendDepth)
	}
	return c, nil
}

// sends returns the number of send slots of a queue: SendDepth, one slot for the marker,
// and ControlDepth. The queue of a SharedRecv has none.
func (c QueueConfig) sends() int {
	if c.receiving {
		return 0
	}
	return c.SendDepth + 1 + c.ControlDepth
}

// firstRecv returns the first receive slot of a queue: receives begin with a chunk.
func (c QueueConfig) firstRecv() int { return (c.sends() + chunkSlots - 1) / chunkSlots * chunkSlots }

// slots returns the number of slots of a queue.
func (c QueueConfig) slots() int {
	if c.RecvDepth == 0 {
		return c.sends()
	}
	return c.firstRecv() + c.RecvDepth
}

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}
