package exec

import (
	"sync"
	"sync/atomic"

	"github.com/panjf2000/ants/v2"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// Pool runs queued values on reusable goroutines. It starts them in the order of queueing, each
// exactly once, and runs at most a fixed number at the same time. Its methods may be called from
// any goroutine and do not block.
type Pool[T any, P ring.Node[T]] struct {
	goroutines goroutines
	most       int32
	run        func(P)
	body       func() // the method work, as one value that is allocated once
	in         ring.Inbox[T, P]
	// workers is the number of busy workers, and oneParked times that of parked ones: one word, so that a worker
	// changes from one to the other in one step. Busy workers run a value or look for one; parked ones wait for a
	// token in wake, or are about to, and no token is on its way to them. A goroutine that starts a worker, or sends
	// a token, counts the worker as busy before; a worker counts itself as parked. A parked worker keeps its
	// goroutine, so that waking it takes one send on a channel, and none of the locks of ants. There are at most
	// most workers.
	workers atomic.Int64
	wake    chan token // at most one token for each worker
	// given is a value that was queued while no worker was busy and nothing was queued: it is older than those in line and
	// in. The goroutine that has made the only worker busy writes it, and then wakes that worker. The first worker that
	// looks for a value takes it, before that worker can rest; so it is nil while no worker is busy.
	given atomic.Pointer[T]
	// closed is set by Close. A worker reads it before and after it counts itself as parked.
	closed atomic.Bool

	mu   sync.Mutex // guards line; held for a few instructions
	line P          // taken from in, oldest first
	// left is true if line is not nil. It is written under mu. take and waiting read it without, to save the lock
	// when there is nothing to take; it may then be outdated.
	left atomic.Bool
}

// token wakes a parked worker, which is counted as busy when the token is sent. All tokens are alike.
type token uint8

// goroutines is an [ants.Pool].
type goroutines interface {
	Submit(func()) error
	Release()
}

// MaxWorkers is the largest number of workers of a pool. A worker that blocks keeps a goroutine, and
// New allocates a byte for each worker that there may be. The users of New check their configurations.
const MaxWorkers = 1 << 15

// New returns a pool with up to most workers, from 1 to MaxWorkers, which call run for each queued
// value. If run ends its goroutine (runtime.Goexit), another worker takes its place. A panic in run
// ends the program. The pool has one goroutine of its own until Close.
func New[T any, P ring.Node[T]](most int, run func(P)) (*Pool[T, P], error) {
	g, err := ants.NewPool(most, ants.WithDisablePurge(true), ants.WithNonblocking(true),
		ants.WithPanicHandler(func(v any) { panic(v) }))
	if err != nil {
		return nil, err
	}
	return newPool[T](g, most, run), nil
}

func newPool[T any, P ring.Node[T]](g goroutines, most int, run func(P)) *Pool[T, P] {
	p := &Pool[T, P]{goroutines: g, most: int32(most), run: run, wake: make(chan token, most)}
	p.body = p.work
	return p
}

// Queue schedules one run of v, even after Close. v may be queued again after its run has begun. In
// steady state Queue allocates nothing.
func (p *Pool[T, P]) Queue(v P) {
	// If no worker is busy, and nothing is queued, then all earlier values have been run, and v needs neither inbox nor
	// line. An Ask takes 0.495 µs in place of 0.51.
	model.Fresh("look")
	if s := p.workers.Load(); s >= oneParked && int32(s) == 0 && p.in.Empty() {
		model.Yield("hand")
		if p.workers.CompareAndSwap(s, s-oneParked+1) {
			model.Yield("give")
			p.given.Store(v)
			model.Yield("token")
			p.wake <- token(0)
			return
		}
	}
	p.in.Push(v)
	model.Fresh("pushed")
	p.call()
}

const oneParked = 1 << 32 // in workers

// call counts one more worker as busy, if the limit allows, and wakes a parked one or starts one.
func (p *Pool[T, P]) call() {
	for {
		model.Fresh("call")
		s := p.workers.Load()
		if int32(s) >= p.most {
			return
		}
		if s >= oneParked {
			if p.wakeParked() {
				return
			}
			continue
		}
		model.Yield("start")
		if p.workers.CompareAndSwap(s, s+1) {
			p.Go(p.body)
			return
		}
	}
}

// wakeParked wakes a parked worker, and returns false if none is parked.
func (p *Pool[T, P]) wakeParked() bool {
	if !p.unpark() {
		return false
	}
	model.Yield("token")
	p.wake <- token(0)
	return true
}

// unpark counts one parked worker as busy, and returns false if none is parked.
func (p *Pool[T, P]) unpark() bool {
	for {
		model.Fresh("unpark")
		s := p.workers.Load()
		if s < oneParked {
			return false
		}
		model.Yield("unpark.swap")
		if p.workers.CompareAndSwap(s, s-oneParked+1) {
			return true
		}
	}
}

// rest waits until there may be work for this worker. It returns false if the worker must end.
func (p *Pool[T, P]) rest() bool {
	model.Fresh("rest")
	if p.closed.Load() { // Close would not wake it
		p.workers.Add(-1)
		model.Fresh("last")
		if p.waiting() {
			p.call()
		}
		return false
	}
	model.Fresh("park")
	p.workers.Add(oneParked - 1)
	if (p.waiting() || p.closed.Load()) && p.unpark() {
		return true
	}
	model.Receive(p.wake, nil) // no select with a channel for Close: the select was 13 % of an Ask's profile
	return true
}

// Go runs fn at once, independent of the queued values. It uses a pooled goroutine, or a new one if
// none is free or the pool is closed.
func (p *Pool[T, P]) Go(fn func()) {
	if p.goroutines.Submit(fn) != nil {
		go fn()
	}
}

// work runs queued values until the pool is closed.
func (p *Pool[T, P]) work() {
	returned := false
	defer func() {
		if !returned { // run ended this goroutine
			p.Go(p.body)
		}
	}()
	for {
		model.Fresh("take")
		if v := p.take(); v != nil {
			p.run(v)
			continue
		}
		if !p.rest() {
			returned = true
			return
		}
	}
}

// take returns the oldest queued value, or nil.
func (p *Pool[T, P]) take() P {
	if !p.left.Load() && p.in.Empty() { // perhaps outdated: the worker looks again before it parks
		return p.takeGiven()
	}
	p.lock()
	defer p.mu.Unlock()
	if p.line == nil {
		if p.line = p.in.TakeAll(); p.line == nil {
			return nil
		}
	}
	// The value in given is older than the values in line: a goroutine writes given before it pushes later values. So
	// given must be read after in.
	v := p.takeGiven()
	if v == nil {
		v = p.line
		p.line = v.InboxHook().Unlink()
	}
	model.Yield("taken")
	if left := p.line != nil; left != p.left.Load() {
		p.left.Store(left)
	}
	return v
}

// takeGiven takes the value in given, or returns nil.
func (p *Pool[T, P]) takeGiven() P {
	model.Yield("given")
	v := p.given.Load()
	if v == nil {
		return nil
	}
	model.Yield("given.swap")
	if !p.given.CompareAndSwap(v, nil) {
		return nil
	}
	return v
}

// waiting reports whether there are queued values. A busy worker may have taken values off the inbox that it has not
// yet put in line: they are seen only with the lock. If none is busy after the look, no values were on their way.
func (p *Pool[T, P]) waiting() bool {
	model.Yield("look.left")
	if p.left.Load() {
		return true
	}
	model.Yield("look.in")
	if !p.in.Empty() {
		return true
	}
	model.Yield("look.busy")
	if int32(p.workers.Load()) == 0 {
		return false
	}
	p.lock()
	defer p.mu.Unlock()
	return p.line != nil || !p.in.Empty()
}

func (p *Pool[T, P]) lock() {
	model.Block("lock", func() bool {
		free := p.mu.TryLock()
		if free {
			p.mu.Unlock()
		}
		return free
	})
	p.mu.Lock()
}

// Close ends the pool's goroutines. Running and queued values are not affected. It is idempotent.
func (p *Pool[T, P]) Close() {
	p.closed.Store(true)
	for p.wakeParked() { // a worker parks at most once more: then it sees closed
	}
	p.goroutines.Release()
}
