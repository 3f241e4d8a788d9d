package actor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// System runs actors. All methods may be called from any goroutine.
type System struct {
	cfg     Config
	pool    *exec.Pool[core, *core]
	loops   []verbena.Loop
	unwatch func()
	stats   counters
	asks    sync.Map // reflect.Type to its *asks

	lastID   atomic.Uint64 // incremented by Spawn
	lastLoop atomic.Uint64 // incremented by Spawn: selects the reactor of an OnReactor actor

	mu      sync.Mutex // guards the fields below; held for a few instructions
	closing bool
	all     map[*core]struct{} // actors that have not ended
	empty   chan struct{}      // closed when closing is true and the map all is empty
	closed  bool               // the pool is closed
}

// Stats has the counters of a system since New.
type Stats struct {
	Spawned, Ended uint64 // actors
	Failures       uint64 // failures of instances (see the package documentation), and panics in Stopped
	Restarts       uint64 // restarts after a failure
	Dropped        uint64 // messages dropped by Overflow Drop; they count in DeadLetters, too
	DeadLetters    uint64 // dead letters of all kinds
	Unreported     uint64 // dead letters that Config.DeadLetters did not get (see there); they count in DeadLetters, too
}

// counters has the counters of Stats. Any goroutine may increment them. They publish no other memory.
type counters struct {
	Spawned, Ended, Failures, Restarts, Dropped, DeadLetters, Unreported atomic.Uint64
}

// New returns a new system. The caller closes it before its runtime. Errors: ErrConfig.
func New(cfg Config) (*System, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	s := &System{cfg: cfg, all: map[*core]struct{}{}, empty: make(chan struct{})}
	if s.pool, err = exec.New(cfg.Workers, (*core).run); err != nil {
		return nil, err
	}
	if cfg.Runtime != nil {
		s.loops = cfg.Runtime.Loops()
		s.unwatch = cfg.Runtime.WatchDevice(s.tellDevice)
	}
	return s, nil
}

// tellDevice passes a device event on to the actors that watch the device.
func (s *System) tellDevice(ev verbena.DeviceEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.all {
		if a.watches.Load() {
			a.pushSystem(&event{a: a, kind: evDevice, device: ev})
		}
	}
}

// Parent is the first argument of Spawn: a *System, or a handler's *Context.
type Parent interface {
	parent() (*System, *core)
}

func (s *System) parent() (*System, *core) { return s, nil }

// Spawn creates an actor and starts it. The function next makes the actor's handler, at the start and
// at every restart. It runs on the same goroutines as the handler. If the argument by is a Context,
// only the handler that got this Context may call Spawn. The new actor is then a child of this
// handler's actor, and is stopped with it.
//
// Errors: ErrConfig; ErrClosed; ErrStopped if the parent is stopping.
func Spawn[M any](by Parent, o Options, next func() Handler[M]) (Ref[M], error) {
	if by == nil {
		return Ref[M]{}, fmt.Errorf("%w: Spawn without a parent", ErrConfig)
	}
	s, parent := by.parent()
	o, err := o.validate(s)
	switch {
	case err != nil:
	case next == nil:
		err = fmt.Errorf("%w: Spawn without a function", ErrConfig)
	case !ring.MPSCFits[envelope[M]](o.Mailbox, maxMailboxBytes):
		err = fmt.Errorf("%w: Options.Mailbox is %d, and messages of %d bytes take more than %d bytes",
			ErrConfig, o.Mailbox, reflect.TypeFor[M]().Size(), uint64(maxMailboxBytes))
	}
	if err != nil {
		return Ref[M]{}, err
	}
	if parent != nil && !parent.open() {
		return Ref[M]{}, ErrStopped
	}
	c := &cell[M]{next: next, box: ring.NewMPSC[envelope[M]](o.Mailbox)}
	c.ctx.cell = c
	if o.Overflow == Wait {
		c.room = newRoom()
	}
	a := &c.core
	a.sys, a.parentOf, a.body, a.opt, a.gone = s, parent, c, o, make(chan struct{})
	a.id = s.lastID.Add(1)
	if a.opt.Name == "" {
		a.opt.Name = fmt.Sprintf("actor-%d", a.id)
	}
	a.random = rand.New(rand.NewPCG(s.cfg.Seed, a.id))
	a.queue = func() { s.pool.Queue(a) }
	if o.On == OnReactor {
		loop, job := o.Loop, reactor.NewJob(a.run)
		if loop == (verbena.Loop{}) {
			loop = s.loops[s.lastLoop.Add(1)%uint64(len(s.loops))]
		}
		r := seam.LoopReactor(loop)
		a.queue = func() { r.Queue(job) }
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return Ref[M]{}, ErrClosed
	}
	s.all[a] = struct{}{}
	s.mu.Unlock()
	s.stats.Spawned.Add(1)
	if parent != nil {
		if parent.children == nil {
			parent.children = map[*core]struct{}{}
		}
		parent.children[a] = struct{}{}
	}
	a.wake()
	return Ref[M]{c}, nil
}

// ended removes an actor that has ended.
func (s *System) ended(a *core) {
	s.stats.Ended.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, a)
	if s.closing && len(s.all) == 0 {
		close(s.empty)
	}
}

// Stats returns the current counters.
func (s *System) Stats() Stats {
	c := &s.stats
	return Stats{
		Spawned: c.Spawned.Load(), Ended: c.Ended.Load(), Failures: c.Failures.Load(), Restarts: c.Restarts.Load(),
		Dropped: c.Dropped.Load(), DeadLetters: c.DeadLetters.Load(), Unreported: c.Unreported.Load(),
	}
}

// closeGrace is how long Close waits after its context has ended and it has stopped the actors as
// StopNow does. On a busy machine connections need this time to end.
const closeGrace = 5 * time.Second

// Close makes every later Spawn fail, stops all actors as Ref.Stop does, and waits until they have
// ended. If ctx ends first, Close stops them as StopNow does, and waits up to 5 s more. A method that
// waits with its handler's Context for something that does not come ends only then, so ctx should end.
// When all actors have ended, Close frees the system's resources. Close is idempotent and may be called
// concurrently. In a handler, Close would wait for its own caller, so it does nothing and returns
// ErrWouldDeadlock.
//
// If some actors have not ended in time, Close returns the context's error, joined with one error
// for each of these actors. Close may then be called again.
func (s *System) Close(ctx context.Context) error {
	if ctx == nil {
		return verbena.ErrNilContext
	}
	if inside(ctx) {
		return fmt.Errorf("%w: System.Close in a handler", ErrWouldDeadlock)
	}
	done := ctx.Done()
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		if len(s.all) == 0 {
			close(s.empty)
		}
	}
	s.mu.Unlock()
	s.stopAll(stopDrain)
	select {
	case <-s.empty:
	case <-done:
		s.stopAll(stopNow)
		t := time.NewTimer(closeGrace)
		defer t.Stop()
		select {
		case <-s.empty:
		case <-t.C:
			return s.stuck(ctx.Err())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		if s.unwatch != nil {
			s.unwatch()
		}
		s.pool.Close()
	}
	return nil
}

// stopAll passes a request to stop to the actors that have no parent. They stop their children later.
// stopAll passes stopNow to all actors directly.
func (s *System) stopAll(how uint32) {
	s.mu.Lock()
	var all []*core
	for a := range s.all {
		if a.parentOf == nil || how == stopNow {
			all = append(all, a)
		}
	}
	s.mu.Unlock()
	for _, a := range all {
		a.requestStop(how)
	}
}

func (s *System) stuck(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{err}
	for a := range s.all {
		errs = append(errs, fmt.Errorf("actor: %s has not ended", a.opt.Name))
	}
	return errors.Join(errs...)
}
