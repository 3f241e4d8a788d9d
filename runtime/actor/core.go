package actor

import (
	"context"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
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
// handles neither: it aborts outstanding work, and reports completions as dead letters. If an actor
// is stopped in phase resting, it ends at once, and its mailbox is reported.
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

// Requests to stop. A larger value is stricter.
const (
	stopNot uint32 = iota
	stopDrain
	stopNow
)

// core is the part of an actor that does not depend on the type of its messages.
type core struct {
	word word
	// stop is the strictest request to stop so far. Any goroutine may raise it by requestStop, which
	// also wakes the actor. The runner reads stop.
	stop atomic.Uint32
	// life is the context of the instance, or of the last one; nil before the first. The runner
	// replaces it, and ends it when the instance winds up or has ended. Any goroutine reads it, and
	// ends it after it has raised stop to stopNow. It publishes the lifetime.
	life atomic.Pointer[lifetime]
	// unseen is the failure of this actor that its parent has not handled yet, with those before it
	// that the parent has not handled either; nil if there is none. The runner sets it and, if it was
	// nil, pushes an event to the parent. The parent's runner reads it and sets it to nil when it
	// handles this event. It publishes the ChildEvent.
	unseen atomic.Pointer[ChildEvent]
	// The clock sets the flag due when the actor's time in phase resting is over. The runner resets
	// it.
	due uatomic.Bool

	system, events lane

	sys      *System
	id       uint64
	opt      Options
	parentOf *core  // the parent; nil if the actor was spawned with the System
	body     body   // the cell that contains this core
	queue    func() // enqueues the actor at its executor: the pool, or a reactor's callback goroutine
	hook     ring.Hook[core]
	gone     chan struct{} // closed when the actor has ended
	// The flag watches is true while the instance wants device events. The runner writes it, and
	// System.tellDevice reads it.
	watches uatomic.Bool

	// Only the runner uses the fields below.
	phase          phase
	left           int                // the steps that this activation may still take
	turn           bool               // the last call of next tried events first; the next tries messages
	stopSeen       uint32             // the last value of stop that was applied
	cause          error              // why the actor winds up or has ended
	restart        bool               // the actor restarts after winding up
	delay          time.Duration      // time in phase resting, before the restart
	free           *event             // list of unused events
	outstanding    int                // events taken by newEvent and not yet freed
	listening      int                // outstanding events that wait for a message or the end of a connection
	children       map[*core]struct{} // children that have not ended
	links          []*link            // owned connections
	outboxes       map[*verbena.Conn]*outbox
	timers         map[TimerID]*timer
	lastID         TimerID
	failures       []time.Time // within Restart.Within
	random         *rand.Rand
	wakeUp         func()             // stops the timer that ends phase resting
	seeking        context.Context    // context of Dial and Accept; ends when the actor begins to stop
	cancelConnects context.CancelFunc // ends seeking; nil if there is no such context
	current        *event             // the event that is being handled
	owed           []owed             // unanswered replies of handled messages
	owedMax        int                // owed is pruned when it reaches this length
}

// body is the part of an actor that depends on the type of its messages. Only the runner calls the
// methods other than shut.
type body interface {
	// make makes a new instance and calls Started.
	make() error
	// receive handles the oldest message, and further ones, which it subtracts from core.left, until it finds
	// none, core.left is used up or mustLook returns true. It returns false if there was none.
	receive() bool
	// handle passes e to the handler. It returns false if the handler has no method for e, and e
	// must be reported.
	handle(e *event) bool
	// stopped calls Stopped, if Started succeeded, and drops the instance.
	stopped(cause error)
	// interrupted reports the message during whose handling the failure happened, if there is one.
	interrupted(cause error)
	// shut makes every later Tell fail. Any goroutine may call it.
	shut()
	// pending returns the number of messages in the mailbox, including those that are being pushed.
	pending() int
	// report removes the oldest message from the mailbox and reports it as a dead letter. It returns
	// false if there was none.
	report(cause error) bool
	// wantsDevice reports whether the instance implements DeviceWatcher.
	wantsDevice() bool
}

// InboxHook returns the link in the pool's queue.
func (a *core) InboxHook() *ring.Hook[core] { return &a.hook }

// wake schedules the actor. It is called after an event, a message or a request to stop was
// published for the actor. Any goroutine may call it.
func (a *core) wake() {
	if a.word.wake() {
		a.queue()
	} else if a.word.hasEnded() {
		a.sweep()
	}
}

// sweep discards events that were pushed after the actor had ended. These are device events and
// timers, never events that the field outstanding counts. Any goroutine may call it.
func (a *core) sweep() {
	a.system.in.TakeAll()
	a.events.in.TakeAll()
}

// lifetime is the context of an instance.
type lifetime struct {
	context.Context
	end context.CancelCauseFunc
}

// beginLife makes the context of a new instance. It publishes the context before it reads stop, and
// requestStop raises stop before it reads life. So one of them ends the context of an instance that
// begins while StopNow is called. Runner only.
func (a *core) beginLife() {
	ctx, end := context.WithCancelCause(context.Background())
	model.Yield("life")
	a.life.Store(&lifetime{ctx, end})
	model.Yield("life.stop")
	if a.stop.Load() == stopNow {
		a.endLife(ErrStopped)
	}
}

// endLife ends the context of the instance, if there is one. Any goroutine may call it.
func (a *core) endLife(cause error) {
	if l := a.life.Load(); l != nil {
		l.end(cause)
	}
}

// requestStop raises the request to stop to how, and wakes the actor. When it returns, the mailbox is
// shut, and with stopNow the context of the instance has ended. That must be so although another
// goroutine has raised the request before: it may be delayed before its next step. Any goroutine may
// call requestStop.
func (a *core) requestStop(how uint32) {
	model.Yield("stop")
	for old := a.stop.Load(); old < how && !a.stop.CompareAndSwap(old, how); {
		old = a.stop.Load()
	}
	model.Yield("stop.shut")
	a.body.shut()
	if how == stopNow {
		model.Yield("stop.life")
		a.endLife(ErrStopped)
	}
	a.wake()
}

// run is one activation of at most Options.Throughput steps. The executor calls it. A fault in a
// handler, for example in memory that was unmapped, is a panic, and so a failure of the actor; inside
// also uses this as the mark of a handler's goroutine.
func (a *core) run() {
	a.word.run()
	a.left = a.opt.Throughput
	returned := false
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if !returned { // the handler called runtime.Goexit; the executor continues on another goroutine
			a.fail(ErrGoexit)
			a.word.again()
			a.queue()
		}
	}()
	for {
		nothing := a.burst()
		if a.phase == over {
			returned = true
			a.finish()
			return
		}
		if a.left <= 0 {
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

// burst takes steps until there is nothing to do, the actor has ended, or a handler panics, but at
// most a.left steps. It subtracts the steps from a.left. It returns true only if there was nothing to
// do.
func (a *core) burst() (nothing bool) {
	defer func() {
		if v := recover(); v != nil {
			a.left-- // count the step: an actor that always panics must yield to other actors, too
			a.fail(panicked(v))
		}
	}()
	for a.left > 0 && a.phase != over {
		if !a.step() {
			return true
		}
		a.left--
	}
	return false
}

// mustLook reports whether something other than messages waits for the runner: a request to stop, or an event.
// Runner only.
func (a *core) mustLook() bool {
	return a.stop.Load() > a.stopSeen || !a.system.empty() || !a.events.empty()
}

// step handles the next request or event, or messages. It returns false if there was nothing to do.
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

// next handles an event or messages. Events and messages alternate while there are both. It returns
// false if there was neither.
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

// open reports whether the running handler may start work that outlives the call. It may do so while
// the actor is up, and in Started. Runner only.
func (a *core) open() bool { return a.phase == up || a.phase == fresh }

// begin makes a new instance.
func (a *core) begin() bool {
	a.beginLife()
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
