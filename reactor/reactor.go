package reactor

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Reactor is one event loop; see the package comment.
type Reactor struct {
	cfg     Config
	ctx     verbs.Context
	tok     *turn.Token
	sleep   *turn.PollerSleeper // nil when stepped
	driver  futures.Driver      // nil when stepped: only Step runs passes
	leader  holderDriver
	futures *futures.Pool[Completion]

	channel verbs.CompChannel

	ready ring.Inbox[readyQueue, *readyQueue]
	tasks ring.Inbox[readyTask, *readyTask]
	loopTasks
	callbacks callbacks
	timers    timers
	watchdog  watchdog
	slotWaits slotWaits
	spinState

	// generation counts the queues that Prepare makes. Prepare writes and reads it, on any goroutine.
	// It publishes no other data.
	generation atomic.Uint32
	// eventArrived is set while the completion channel has events that no pass has taken. arrived, or the loop
	// (waker.pass), sets it after the event was published. The holder clears it before it takes the events. Any
	// goroutine reads it.
	eventArrived atomic.Bool
	// announces is set if the completion channel calls arrived for its events (verbs.Source). With other
	// policies than PolicyEconomy the poller takes them, so that each makes the loop spin. Constant after
	// New.
	announces bool
	// closed is set by Close, with the turn held. Any goroutine reads it. It publishes no other data.
	closed atomic.Bool
	done   chan struct{} // closed when the loop has returned

	slabMu sync.Mutex // guards slabs and slab.queues
	slabs  map[slabKey]*slab

	closing   chan struct{} // a lock that Close takes; a channel, so that a context can end the wait. It guards the next field
	destroyed bool
	// reclaimTask is scheduled to cause a pass, because each pass reclaims quarantined queues; see
	// scheduleReclaim.
	reclaimTask Task

	// Only the holder of the turn uses the fields below, except maxMessage, maxDatagram and device. These
	// three are constant after New, and any goroutine may read them.
	batch                  verbs.IOBatch
	sinks                  sinkScope         // slots cached for sinks
	polls                  []verbs.PollGroup // the polls of each pass, and
	polled                 []*cqState        // their completion queues
	sendOwners, recvOwners []*Queue          // the queues of batch.Sends and of batch.Recvs
	recvFirst              []uint32          // the first slot of each list in batch.Recvs
	queues                 []*Queue          // by id; nil if the id is free
	freeIDs                []uint32
	shared                 []*Queue      // the queues of the admitted SharedRecvs
	quarantined            []*Queue      // released queues whose memory is not given back yet
	reclaimErr             error         // from the last reclaimAll: the device refused to give back memory
	reclaimed              chan struct{} // closed when no queue is quarantined any more; nil if no Close waits for this
	touched                *Queue        // the queue whose completions are being dispatched
	cqs, sendCQs, recvCQs  []*cqState    // all completion queues, those of sends, and those of receives; see qp_cqroom.go
	noResize               bool          // the device cannot resize completion queues
	live                   int           // number of admitted queues that are not released
	outstanding            int           // number of sends posted and not completed
	maxMessage             uint32
	maxDatagram            uint32             // the most bytes that a datagram carries: the largest active MTU of the ports
	receiver               verbs.PollReceiver // ctx, if ctx is a PollReceiver; otherwise nil
	stats                  Stats
	posting, polling       passTime // clock readings of this pass, for recorders
	device                 verbs.DeviceAttr
	recheckArmed           bool          // the recheck timer runs
	inPass                 bool          // a pass runs, so results are delivered at its end
	inUserCode             bool          // user code may run (complete_attend.go)
	delivering             bool          // deliverAll runs; it also delivers results that are added while it runs
	sinkOwner              *Queue        // the queue whose sink is being called; nil: none
	deliverFn, runFn       func()        // deliverAll and runWoken as func values, made once
	filled                 []delivery    // filled promises, to be published at the end of the pass
	delivered              int           // how many of these promises are published
	outcomes               []outcome     // results for sinks, to be delivered at the end of the pass
	deliveredSinks         int           // how many of these results are delivered
	delayed                []*Queue      // queues whose sends are held back (post_delay.go)
	flushAll               bool          // this pass holds no sends back
	flushAsked             bool          // the next pass holds no sends back
	delayClock             time.Duration // the time of this pass, for held-back sends; 0: not read yet
	lastDrives             uint64        // the token's Stats.Drives at the last beginDelays
	ownBacklog             *Queue        // the queue of the request that TransferWait or TransferNow adds to this pass; or nil
	lease                  Lease         // the lease that the operations in leaseEnds share; endLeases calls its End
	leaseEnds              int           // the number of ended operations for which endLeases has yet to end the lease
}

// cqState is a completion queue and its state in the reactor.
type cqState struct {
	cq           verbs.CQ
	wcArena      *mem.Arena // the memory of wc
	wc           []verbs.WC // its completions are polled into wc
	receives     bool       // it is one of the recvCQs
	armed        bool
	armedEmpty   bool   // armed, and polled empty after that: the next completion raises an event
	eventDue     bool   // a completion was polled while armedEmpty was set, so its event must come
	eventOverdue bool   // the last recheck found eventDue set (loop_recheck.go)
	unacked      int    // events that are not acknowledged yet
	entries      int    // the capacity that the device granted
	room         int    // number of entries not reserved for a Queue
	dead         bool   // the completion queue gives no more completions
	why          error  // the cause if dead is set
	emptyAt      uint64 // the number of the last pass that polled the completion queue empty
}

// ackBatch is how many events of a completion queue one call of ibv_ack_cq_events acknowledges. One
// call for each event would cost more, because each call takes a lock.
const ackBatch = 64

// New makes a reactor on an open device. Unless the reactor is stepped (Config.Stepped), New starts
// its goroutines. The caller must close the reactor before the device.
func New(cfg Config) (_ *Reactor, err error) {
	if cfg, err = cfg.validate(); err != nil {
		return nil, err
	}
	r := &Reactor{cfg: cfg, ctx: cfg.Context, done: make(chan struct{}), closing: make(chan struct{}, 1)}
	r.reclaimTask.Fn = func() {} // does nothing, because the pass that runs the task reclaims the quarantined queues
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
	if err = r.readPorts(); err != nil {
		return nil, err
	}
	if err = r.makeQueues(); err != nil {
		return nil, err
	}
	how := turn.Config{CallerDriving: !cfg.NoCallerDriving && !cfg.Stepped, Spin: cfg.Spin}
	if err = r.configureSpin(&how); err != nil {
		return nil, err
	}
	r.announces = !cfg.Stepped && r.policy == PolicyEconomy && sys.Announces(r.channel)
	sleeper, err := r.makeSleeper()
	if err != nil {
		return nil, err
	}
	r.loopTasks.init(r)
	r.timers.init(cfg.Now(), cfg.real)
	r.watchdog.init(r)
	var w turn.Work = (*work)(r)
	var receives bool
	if r.receiver, receives = r.ctx.(verbs.PollReceiver); receives {
		w = receivingWork{(*work)(r)}
	}
	r.tok = turn.New(w, sleeper, how)
	if cfg.Stepped {
		close(r.done)
		return r, nil
	}
	if err = r.attach(r.channel, keyCompletions); err != nil {
		return nil, err
	}
	r.driver, r.leader.r = (*work)(r), r
	r.startCallbacks()
	go r.runLoop()
	return r, nil
}

// readPorts sets the limits to those of the ports that are active. If none is, readPorts sets them to those
// of the first port.
func (r *Reactor) readPorts() error {
	first, err := verbs.ChoosePort(r.ctx)
	if err != nil {
		return err
	}
	for n := first; n == first || int(n) <= r.device.PhysPorts; n++ {
		p, err := r.ctx.QueryPort(n)
		if err != nil {
			return err
		}
		if n == first {
			r.maxMessage = p.MaxMsgSize
		} else if p.State != verbs.PortActive {
			continue
		}
		r.maxMessage = min(r.maxMessage, p.MaxMsgSize)
		r.maxDatagram = max(r.maxDatagram, min(p.ActiveMTU, verbs.MTU4096).Bytes())
	}
	return nil
}

func (r *Reactor) makeQueues() (err error) {
	if r.channel, err = r.ctx.CreateCompChannel(); err != nil {
		return err
	}
	entries := r.cfg.CQEntries
	if !r.cfg.fixedCQs && r.device.MaxCQE > 0 {
		entries = min(entries, r.device.MaxCQE)
	}
	for _, list := range []*[]*cqState{&r.sendCQs, &r.recvCQs} {
		if _, err = r.addCQ(list, entries); err != nil {
			return err
		}
	}
	return nil
}

// MaxMessage returns the length of the largest message that every active port of the device carries, in
// bytes. The result is at most math.MaxInt.
func (r *Reactor) MaxMessage() int { return int(min(uint64(r.maxMessage), math.MaxInt)) }

// MaxDatagram returns the length of the largest datagram that any active port of the device carries, in
// bytes.
func (r *Reactor) MaxDatagram() uint32 { return r.maxDatagram }

// Step runs one pass of a stepped reactor, and then the loop tasks, timers and callbacks. It reports
// whether there was anything to do. Only one goroutine at a time may call Step.
func (r *Reactor) Step() bool { return r.tok.Step() }

// NextTimer returns when a stepped reactor next has something to do. If a submission waits for Step,
// NextTimer returns the current time. Otherwise it returns the time of the next timer, or the time at
// which a held-back send must be posted, whichever is earlier. The zero time means never.
func (r *Reactor) NextTimer() time.Time {
	if (*work)(r).Pending() {
		return r.cfg.Now()
	}
	return r.delayedUntil(r.timers.next())
}

// Futures returns the pool of the operations' futures. Code that builds one operation out of several
// may take futures from the pool. The futures' callbacks run on the reactor's callback goroutine.
func (r *Reactor) Futures() *futures.Pool[Completion] { return r.futures }

// Driver returns the futures.Driver with which a waiting goroutine drives the reactor; nil for a
// stepped reactor.
func (r *Reactor) Driver() futures.Driver { return r.driver }
