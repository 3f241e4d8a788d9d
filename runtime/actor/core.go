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

// phase is the state of an actor. Only the runner changes it.
//
//	         Started         Stop            all handled,            no child or
//	fresh ────────────> up ────────> draining ────────────> parting ─────────────> over
//	  ^ │                │              │       nothing        │  connection left    ^
//	  │ │                │              │     outstanding      │                     │
//	  │ └────────────────┴──────┬───────┴──────────────────────┘                     │
//	  │                         │ failure or StopNow                                 │
//	  │ the wait ends           v          no restart: no child, connection          │
//	resting <───────────── windingUp ────────────────────────────────────────────────┘
//	         restart: nothing left         or operation left
//
// An actor in phase draining handles messages and events as in phase up. In phase windingUp it
// handles neither: it aborts outstanding work and reports its completions. An actor that is stopped
// in phase resting ends at once, and its mailbox is reported.
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

// Requests to stop; a larger value is stricter.
const (
	stopNot uint32 = iota
	stopDrain
	stopNow
)

// core is the part of an actor that does not depend on the type of its messages.
type core struct {
	word word
	// stop is raised by Stop and StopNow on any goroutine, which then wakes the actor. The runner
	// reads it.
	stop atomic.Uint32
	// due is set by the clock when a rest ends and reset by the runner.
	due uatomic.Bool

	system, events lane

	sys      *System
	id       uint64
	opt      Options
	parentOf *core  // the parent; nil: spawned by the system
	body     body   // the cell that contains this core
	queue    func() // enqueues the actor at its executor; called by wake and by the runner
	hook     ring.Hook[core]
	gone     chan struct{} // closed at the end
	// watches reports whether the instance wants device events. The runner writes it, the system's
	// device callback reads it.
	watches uatomic.Bool

	// Runner only.
	phase          phase
	turn           bool // the next step prefers an event to a message
	stopSeen       uint32
	cause          error         // why the actor winds up or ended
	restart        bool          // the actor restarts after winding up
	delay          time.Duration // before the restart
	free           *event
	outstanding    int                // events taken by newEvent and not yet freed
	listening      int                // of the outstanding events, those that wait for messages
	children       map[*core]struct{} // not ended
	links          []*link            // owned connections
	outboxes       map[*verbena.Conn]*outbox
	timers         map[TimerID]*timer
	lastID         TimerID
	failures       []time.Time // within Restart.Within
	random         *rand.Rand
	wakeUp         func()             // stops the timer of the rest
	life           context.Context    // of the instance: ends when the instance winds up or has ended
	cancel         context.CancelFunc // ends life; never nil
	seeking        context.Context    // of Dial and Accept: ends when the actor is to stop
	cancelConnects context.CancelFunc // nil: no Dial or Accept in progress
	current        *event             // being handled
	owed           []owed             // unanswered replies of handled messages
	owedMax        int                // length at which owed is pruned
}

// body is the part of an actor that depends on the type of its messages. Only the runner calls its
// methods, except shut.
type body interface {
	// make makes a new instance and calls Started.
	make() error
	// receive handles the oldest message. It returns false if there was none.
	receive() bool
	// handle passes e to the handler. It returns false if the handler has no method for e and e has
	// to be reported.
	handle(e *event) bool
	// stopped calls Stopped, if Started succeeded, and drops the instance.
	stopped(cause error)
	// interrupted reports the message whose handling failed, if any.
	interrupted(cause error)
	// shut makes every later Tell fail. Any goroutine.
	shut()
	// pending returns the number of messages, those being pushed included.
	pending() int
	// report takes the oldest message and sends it to Config.DeadLetters. It returns false if there
	// was none.
	report(cause error) bool
	// wantsDevice reports whether the instance implements DeviceWatcher.
	wantsDevice() bool
}

// InboxHook links the actor into its pool's queue.
func (a *core) InboxHook() *ring.Hook[core] { return &a.hook }

// wake schedules the actor after something was published for it. Any goroutine.
func (a *core) wake() {
	if a.word.wake() {
		a.queue()
	} else if a.word.hasEnded() {
		a.sweep()
	}
}

// sweep discards events pushed after the end. They are device events and timers; an event that the
// field outstanding counts is never among them. Any goroutine.
func (a *core) sweep() {
	a.system.in.TakeAll()
	a.events.in.TakeAll()
}

// requestStop raises the request to how and wakes the actor. Any goroutine.
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

// run is one activation of at most Options.Throughput steps. The executor calls it.
func (a *core) run() {
	a.word.run()
	left := a.opt.Throughput
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine; the executor continues on another
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

// burst takes steps until there is nothing to do, the budget left is spent, the actor has ended, or
// a handler panics. It returns true only if there was nothing to do.
func (a *core) burst(left *int) (nothing bool) {
	defer func() {
		if v := recover(); v != nil {
			*left-- // an actor that always panics still yields to others
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

// step handles the next request, event or message. It returns false if there was nothing to do.
func (a *core) step() bool {
	if how := a.stop.Load(); how > a.stopSeen {
		a.stopSeen = how
		a.applyStop(how)
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

// next handles an event or a message; events and messages alternate while there are both.
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

// open reports whether the running handler may start work that outlives the call: the actor is up,
// or in Started. Runner only.
func (a *core) open() bool { return a.phase == up || a.phase == fresh }

// begin makes a new instance.
func (a *core) begin() bool {
	a.cancel() // of the last instance
	a.life, a.cancel = context.WithCancel(context.Background())
	if err := a.body.make(); err != nil {
		a.fail(err)
		return true
	}
	a.phase = up
	if a.stopSeen != stopNot { // Stop came before Started
		a.drain()
	}
	a.watches.Store(a.body.wantsDevice())
	return true
}
