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
	// busy is the number of workers that run a value or look for one. The goroutine that starts a
	// worker increments busy; the worker decrements it.
	busy atomic.Int32
	// parked is the number of workers that wait for a token in wake, or are about to, and for which no
	// token is on its way. A worker increments it before it waits. A goroutine that decrements it sends
	// one token, after it has incremented busy for the woken worker. A parked worker keeps its goroutine,
	// so that waking it takes one send on a channel, and none of the locks of ants.
	parked atomic.Int32
	wake   chan token // at most one token for each busy worker, and one for each parked worker that Close ends
	// closed is set by Close. A worker reads it after it has incremented parked.
	closed atomic.Bool

	mu   sync.Mutex // guards line; held for a few instructions
	line P          // taken from in, oldest first
	// left is true if line is not nil. It is written under mu. take reads it without, to save the lock when
	// there is nothing to take; it may then be outdated.
	left atomic.Bool
}

// token wakes a parked worker.
type token uint8

const (
	tokenRun token = iota // the worker was counted in busy
	tokenEnd              // the worker must end
)

// goroutines is an [ants.Pool].
type goroutines interface {
	Submit(func()) error
	Release()
}

// New returns a pool with up to most workers, which call run for each queued value. If run ends its
// goroutine (runtime.Goexit), another worker takes its place. A panic in run ends the program. The
// pool has one goroutine of its own until Close.
func New[T any, P ring.Node[T]](most int, run func(P)) (*Pool[T, P], error) {
	g, err := ants.NewPool(most, ants.WithDisablePurge(true), ants.WithNonblocking(true),
		ants.WithPanicHandler(func(v any) { panic(v) }))
	if err != nil {
		return nil, err
	}
	return newPool[T](g, most, run), nil
}

func newPool[T any, P ring.Node[T]](g goroutines, most int, run func(P)) *Pool[T, P] {
	p := &Pool[T, P]{goroutines: g, most: int32(most), run: run, wake: make(chan token, 2*most)}
	p.body = p.work
	return p
}

// Queue schedules one run of v, even after Close. v may be queued again after its run has begun. In
// steady state Queue allocates nothing.
func (p *Pool[T, P]) Queue(v P) {
	p.in.Push(v)
	model.Fresh("pushed")
	if !p.reserveWorker() {
		return
	}
	if p.unpark() {
		model.Yield("token")
		p.wake <- tokenRun
	} else {
		p.Go(p.body)
	}
}

// unpark takes a parked worker off the count, and returns false if there is none.
func (p *Pool[T, P]) unpark() bool {
	for {
		model.Fresh("unpark")
		n := p.parked.Load()
		if n == 0 {
			return false
		}
		model.Yield("unpark.swap")
		if p.parked.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// park waits until another goroutine has reserved this worker. It returns false if the worker must end:
// the pool is closed, or enough other workers are parked.
func (p *Pool[T, P]) park() bool {
	for {
		model.Fresh("park")
		n := p.parked.Load()
		if n >= p.most {
			return false
		}
		model.Yield("park.swap")
		if p.parked.CompareAndSwap(n, n+1) {
			break
		}
	}
	model.Fresh("parked")
	if p.closed.Load() && p.unpark() {
		return false
	}
	t, _ := model.Receive(p.wake, nil) // no select with a channel for Close: the select was 13 % of an Ask's profile
	return t == tokenRun
}

// reserveWorker increments busy for one more worker, if the limit allows.
func (p *Pool[T, P]) reserveWorker() bool {
	for {
		n := p.busy.Load()
		if n >= p.most {
			return false
		}
		model.Yield("hire")
		if p.busy.CompareAndSwap(n, n+1) {
			return true
		}
	}
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
		model.Fresh("leave")
		p.busy.Add(-1)
		model.Fresh("left")
		if (!p.waiting() || !p.reserveWorker()) && !p.park() {
			returned = true
			return
		}
	}
}

// take returns the oldest queued value, or nil.
func (p *Pool[T, P]) take() P {
	if !p.left.Load() && p.in.Empty() { // perhaps outdated: work looks again, with the lock
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		if p.line = p.in.TakeAll(); p.line == nil {
			return nil
		}
	}
	v := p.line
	p.line = v.InboxHook().Unlink()
	if left := p.line != nil; left != p.left.Load() {
		p.left.Store(left)
	}
	return v
}

// waiting reports whether there are queued values. Without the lock it would miss those that another
// worker has taken off the inbox and not yet put in line.
func (p *Pool[T, P]) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line != nil || !p.in.Empty()
}

// Close ends the pool's goroutines. Running and queued values are not affected. It is idempotent.
func (p *Pool[T, P]) Close() {
	p.closed.Store(true)
	for model.Yield("close"); p.unpark(); {
		p.wake <- tokenEnd
	}
	p.goroutines.Release()
}
