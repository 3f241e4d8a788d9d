package actor

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// phase is where an actor's life stands. The runner moves it.
//
//	          Started            Stop            all handled,
//	fresh ───────────────> up ─────────> draining ──────────────> parting ──┐
//	  ^ ^                   │                │    nothing under way    │    │ no child, connection
//	  │ │                   │ failure, or StopNow, in any of these     │    │ or operation left
//	  │ │                   v                                          v    v
//	  │ └────────────── windingUp <────────────────────────────────────  Stopped, over
//	  │  due, once more     │
//	  │                     │ no child, connection or operation left
//	  │                     v
//	  └── the wait ends ─ resting (a failure that is to be restarted; else over)
//
// draining handles messages and events as up does. windingUp handles neither: what
// was under way is ended hard, and reported. A resting actor that is stopped
// is over at once, and its mailbox is reported.
type phase uint8

const (
	fresh phase = iota
	up
	draining
	parting
	windingUp
	resting
	over
)

// How an actor is to stop; more is harder.
const (
	stopNot uint32 = iota
	stopDrain
	stopNow
)

// core is an actor but for the type of its messages.
type core struct {
	word word
	// stop is raised by Stop and StopNow, any goroutine; read by the runner,
	// which is woken after it.
	stop atomic.Uint32
	// due is set by the clock when a rest is over, taken by the runner.
	due uatomic.Bool

	system, events lane

	sys      *System
	id       uint64
	opt      Options
	parentOf *core  // nil: the system
	body     body   // the same object with its type
	queue    func() // gives the actor to its executor; wake's and the runner's
	hook     ring.Hook[core]
	gone     chan struct{} // closed at the end
	// watches tells that the instance wants device events. Written by the
	// runner, read by the system's watcher.
	watches uatomic.Bool

	// The runner's.
	phase     phase
	turn      bool // an event is next, if there is one; else a message
	stopSeen  uint32
	cause     error // why it winds up, or ended
	restart   bool  // it comes back after winding up
	delay     time.Duration
	free      *event
	underWay  int                // events that will be pushed
	listening int                // of these, those that wait for messages
	children  map[*core]struct{} // alive
	links     []*link            // own connections
	outboxes  map[*verbena.Conn]*outbox
	timers    map[TimerID]*timer
	lastID    TimerID
	failures  []time.Time // within Restart.Within
	random    *rand.Rand
	wakeUp    func()             // stops the rest's timer
	life      context.Context    // of the instance: ends when it winds up
	cancel    context.CancelFunc // never nil
	seeking   context.Context    // of Dial and Accept: ends when the actor is to stop
	giveUp    context.CancelFunc // nil: nothing is sought
	current   *event             // being handled
	owed      []owed             // replies that handled messages still owe
	owedMax   int                // prune there
}

// body is what depends on the type of the messages. Runner only.
type body interface {
	// make makes a new instance and tells it Started.
	make() error
	// receive handles the oldest message, if there is one.
	receive() bool
	// handle gives e to the handler; false: it has no method for that.
	handle(e *event) bool
	// stopped tells the instance Stopped, if Started succeeded, and drops it.
	stopped(cause error)
	// interrupted reports the message that was being handled, if any.
	interrupted(cause error)
	// shut makes every later Tell fail. Any goroutine.
	shut()
	// pending is how many messages there are, those being pushed included.
	pending() int
	// report reports the oldest message as not handled, if there is one.
	report(cause error) bool
	// wantsDevice tells whether the instance has Device.
	wantsDevice() bool
}

// InboxHook links the actor into its pool's queue.
func (a *core) InboxHook() *ring.Hook[core] { return &a.hook }

// wake sees to it that what was just published is looked at. Any goroutine.
func (a *core) wake() {
	if a.word.wake() {
		a.queue()
	} else if a.word.hasEnded() {
		a.sweep()
	}
}

// sweep throws away what was pushed too late: nothing that is counted as under way
// can be there, only device events and timers. Any goroutine.
func (a *core) sweep() {
	a.system.in.TakeAll()
	a.events.in.TakeAll()
}

// requestStop raises the request and wakes the actor. Any goroutine.
func (a *core) requestStop(how uint32) {
	for {
		old := a.stop.Load()
		if old >= how {
			return
		}
		if a.stop.CompareAndSwap(old, how) {
			break
		}
	}
	a.body.shut()
	a.wake()
}

// run is one activation: as much as Options.Throughput allows. The executor's.
func (a *core) run() {
	a.word.run()
	left := a.opt.Throughput
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine; the executor goes on elsewhere
			a.fail(ErrGoexit)
			a.word.again()
			a.queue()
		}
	}()
	for {
		nothing := a.burst(&left)
		if a.phase == over {
			returned = true
			a.finish()
			return
		}
		if left <= 0 {
			returned = true
			a.word.again()
			a.queue()
			return
		}
		if nothing && a.word.rest() {
			returned = true
			return
		}
	}
}

// burst takes steps until nothing is there, which it reports, the budget is spent,
// or a handler panics.
func (a *core) burst(left *int) (nothing bool) {
	defer func() {
		if v := recover(); v != nil {
			*left-- // so that one that always panics lets others go on
			a.fail(panicked(v))
		}
	}()
	for *left > 0 && a.phase != over {
		if !a.step() {
			return true
		}
		*left--
	}
	return false
}

// step does the next thing; false if there is none.
func (a *core) step() bool {
	if how := a.stop.Load(); how > a.stopSeen {
		a.stopSeen = how
		a.heed(how)
		return true
	}
	if e := a.system.pop(); e != nil {
		a.systemEvent(e)
		return true
	}
	switch a.phase {
	case fresh:
		return a.begin()
	case up, draining, parting:
		if a.next() {
			return true
		}
		return a.phase != up && a.part()
	case windingUp:
		return a.windUp()
	case resting:
		return a.due.Load() && a.revive()
	}
	return false
}

// next handles an event or a message, in turns while there are both.
func (a *core) next() bool {
	a.turn = !a.turn
	if a.turn {
		if e := a.events.pop(); e != nil {
			a.event(e)
			return true
		}
		return a.body.receive()
	}
	if a.body.receive() {
		return true
	}
	if e := a.events.pop(); e != nil {
		a.event(e)
		return true
	}
	return false
}

// open tells whether the handler that runs may begin what outlives it: it is up, or
// in Started. Runner only.
func (a *core) open() bool { return a.phase == up || a.phase == fresh }

// begin makes the instance.
func (a *core) begin() bool {
	a.cancel() // the last one's
	a.life, a.cancel = context.WithCancel(context.Background())
	if err := a.body.make(); err != nil {
		a.fail(err)
		return true
	}
	a.phase = up
	if a.stopSeen != stopNot { // told before
		a.drain()
	}
	a.watches.Store(a.body.wantsDevice())
	return true
}
