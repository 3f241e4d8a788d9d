package reactor

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Reactor is one event loop. All fields below "the holder's" are touched only
// by the holder of the turn.
type Reactor struct {
	cfg     Config
	ctx     verbs.Context
	tok     *turn.Token
	sleep   *turn.PollerSleeper // nil when stepped
	driver  futures.Driver      // nil when stepped: nobody else would run the loop
	leader  leader
	futures *futures.Pool[Completion]

	channel verbs.CompChannel
	wcArena *mem.Arena

	ready ring.Inbox[readyQueue, *readyQueue]
	tasks ring.Inbox[readyTask, *readyTask]
	loopTasks
	callbacks callbacks
	timers    timers
	watchdog  watchdog
	slotWaits slotWaits
	spinState

	// generation counts queues ever made; written by NewQueue, publishes nothing.
	generation atomic.Uint32
	// closed is set by Close; submitters and NewQueue read it.
	closed atomic.Bool
	done   chan struct{} // closed when the loop has returned

	closing   chan struct{} // has a place for the one Close that goes on; guards destroyed
	destroyed bool
	// reclaimTask makes a turn, which sweeps the graves; see scheduleReclaim.
	reclaimTask Task

	// The holder's.
	batch                  verbs.IOBatch
	sinks                  sinkScope         // for sinks
	polls                  []verbs.PollGroup // of a turn
	sendOwners, recvOwners []*Queue
	recvFirst              []uint32
	queues                 []*Queue // by number; nil where free
	freeIDs                []uint32
	quarantined            []*Queue      // released, memory not yet given back
	reclaimErr             error         // why the device keeps what a grave has; of the last sweep
	reclaimed              chan struct{} // closed by the sweep that leaves no graves; nil: nobody waits
	touched                *Queue
	sendCQ, recvCQ         cqState
	live                   int
	outstanding            int // sends posted and not retired
	maxMessage             uint32
	maxDatagram            uint32 // bytes one datagram carries: the port's path MTU
	stats                  Stats
	posting, polling       passTime // of this turn, for recorders
	device                 verbs.DeviceAttr
	recheckArmed           bool          // the timer of recheck runs
	inPass                 bool          // results are kept for the end of the turn
	inUserCode             bool          // user code runs, or control code that may call it (complete_attend.go)
	delivering             bool          // tell runs: what is noted is told
	sinkOwner              *Queue        // whose sink is being called; nil: no queue's
	deliverFn, runFn       func()        // tell and run, as values: made once
	out                    []delivery    // what has ended
	delivered              int           // of out
	outcomes               []outcome     // of those in out that are no promises
	deliveredSinks         int           // of outcomes
	delayed                []*Queue      // that have sends held back (post_delay.go)
	flushAll               bool          // the turn holds nothing back
	flushAsked             bool          // the next turn is to hold nothing back
	delayClock             time.Duration // the clock in this turn, for what is held back; 0: not read
	lastDrives             uint64        // drivers there were by the last turn that looked
	ownBacklog             *Queue        // to whose backlog the holder has added its own request; nil: none
	lease                  Lease         // of the operations that ended last
	leaseEnds              int           // how many they are
}

// cqState is a completion queue and what is known of it.
type cqState struct {
	cq           verbs.CQ
	wc           []verbs.WC
	armed        bool
	armedEmpty   bool // armed, and polled empty since: the next completion has an event
	eventDue     bool // it was silent and had a completion: an event is on its way
	eventOverdue bool // it was owed an event when recheck came by last
	unacked      int
	entries      int    // its capacity
	room         int    // entries that are not promised to a queue
	dead         bool   // it gives no completions any more
	why          error  // it is dead
	emptyAt      uint64 // the turn in which it was last polled empty
}

// ackBatch is after how many events a queue's acknowledgements are handed in:
// an acknowledgement takes a lock in the C library.
const ackBatch = 64

// New makes a reactor on an open device and, unless it is stepped, starts its
// goroutine. The caller closes it before the device.
func New(cfg Config) (_ *Reactor, err error) {
	if cfg, err = cfg.validate(); err != nil {
		return nil, err
	}
	r := &Reactor{cfg: cfg, ctx: cfg.Context, done: make(chan struct{}), closing: make(chan struct{}, 1)}
	r.reclaimTask.Fn = func() {} // the turn that runs it does the work
	r.deliverFn, r.runFn = r.deliverAll, r.runWoken
	r.futures = futures.NewPool[Completion](futures.Options[Completion]{Execute: r.Callback})
	defer func() {
		if err != nil {
			err = errors.Join(err, r.destroy())
		}
	}()
	if r.device, err = r.ctx.QueryDevice(); err != nil {
		return nil, err
	}
	port, err := r.ctx.QueryPort(1)
	if err != nil {
		return nil, err
	}
	r.maxMessage = port.MaxMsgSize
	r.maxDatagram = min(port.ActiveMTU, verbs.MTU4096).Bytes()
	if err = r.makeQueues(); err != nil {
		return nil, err
	}
	how := turn.Config{CallerDriving: !cfg.NoCallerDriving && !cfg.Stepped, Spin: cfg.Spin}
	if err = r.configureSpin(&how); err != nil {
		return nil, err
	}
	sleeper, err := r.makeSleeper()
	if err != nil {
		return nil, err
	}
	r.loopTasks.init(r)
	r.timers.init(cfg.Now(), cfg.real)
	r.watchdog.init(r)
	r.tok = turn.New((*work)(r), sleeper, how)
	if cfg.Stepped {
		close(r.done)
		return r, nil
	}
	r.driver, r.leader.r = (*work)(r), r
	r.startCallbacks()
	go r.runLoop()
	return r, nil
}

func (r *Reactor) makeQueues() (err error) {
	if r.channel, err = r.ctx.CreateCompChannel(); err != nil {
		return err
	}
	size := 2 * r.cfg.PollBatch * verbs.SizeofWC
	if r.wcArena, err = mem.Map(size, mem.Options{Node: r.cfg.Node}); err != nil {
		return err
	}
	half := uint64(size / 2)
	for i, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		wc, ok := mem.Array[verbs.WC](r.wcArena, r.wcArena.Addr()+uint64(i)*half, r.cfg.PollBatch)
		if !ok {
			return fmt.Errorf("reactor: no room for %d completions in %d bytes", r.cfg.PollBatch, half)
		}
		if err = r.makeCQ(s, wc, uint64(i)); err != nil {
			return err
		}
	}
	r.setPolls()
	return nil
}

// MaxMessage is the largest message of the device's port, in bytes; where int has 32
// bits, no more than a slice can have.
func (r *Reactor) MaxMessage() int { return int(min(uint64(r.maxMessage), math.MaxInt)) }

// MaxDatagram is the largest datagram of the device's port, in bytes.
func (r *Reactor) MaxDatagram() uint32 { return r.maxDatagram }

// Step runs one turn of a stepped reactor, with its errands, timers and
// callbacks, and reports whether it did anything. One goroutine at a time.
func (r *Reactor) Step() bool { return r.tok.Step() }

// NextTimer is when a stepped reactor has something to do by itself: now if Step finds
// something that was submitted, else by the clock; zero: never.
func (r *Reactor) NextTimer() time.Time {
	if (*work)(r).Pending() {
		return r.cfg.Now()
	}
	return r.delayedUntil(r.timers.next())
}

// Futures is the pool of the operations' futures, for operations made of
// several: its callbacks run on the reactor's callback goroutine.
func (r *Reactor) Futures() *futures.Pool[Completion] { return r.futures }

// Driver is who drives a waiting goroutine; nil for a stepped reactor.
func (r *Reactor) Driver() futures.Driver { return r.driver }
