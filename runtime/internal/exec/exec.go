package exec

import (
	"sync"
	"sync/atomic"

	"github.com/panjf2000/ants/v2"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// Pool runs what is queued on goroutines that it keeps for the next, at most a fixed
// number at once, in the order of queueing, each exactly once. Its methods may be
// called from any goroutine, and do not block.
type Pool[T any, P ring.Node[T]] struct {
	goroutines goroutines
	most       int32
	run        func(P)
	body       func() // work, made once
	in         ring.Inbox[T, P]
	// busy counts workers that run or look. Raised by who starts one, lowered by
	// the worker.
	busy atomic.Int32

	mu   sync.Mutex // guards line; held for some instructions
	line P          // taken from in, oldest first
}

// goroutines is an [ants.Pool].
type goroutines interface {
	Submit(func()) error
	Release()
}

// New makes a pool with up to most workers, which call run. It may end its goroutine
// (runtime.Goexit): another takes its place. It recovers its panics itself: one that
// comes here ends the program. The pool has a goroutine of its own until Close.
func New[T any, P ring.Node[T]](most int, run func(P)) (*Pool[T, P], error) {
	g, err := ants.NewPool(most, ants.WithDisablePurge(true), ants.WithNonblocking(true),
		ants.WithPanicHandler(func(v any) { panic(v) }))
	if err != nil {
		return nil, err
	}
	return newPool[T](g, most, run), nil
}

func newPool[T any, P ring.Node[T]](g goroutines, most int, run func(P)) *Pool[T, P] {
	p := &Pool[T, P]{goroutines: g, most: int32(most), run: run}
	p.body = p.work
	return p
}

// Queue has v run once, soon, also after Close. v may be queued again when its run
// has begun. In steady state it allocates nothing.
func (p *Pool[T, P]) Queue(v P) {
	p.in.Push(v)
	model.Fresh("pushed")
	if p.hire() {
		p.Go(p.body)
	}
}

// hire makes room for one more worker, if there may be one.
func (p *Pool[T, P]) hire() bool {
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

// Go has fn run at once, beside what is queued: on a goroutine that is kept, or on
// one of its own when all are busy, the last is not quite back, or after Close.
func (p *Pool[T, P]) Go(fn func()) {
	if p.goroutines.Submit(fn) != nil {
		go fn()
	}
}

// work runs what is queued until nothing is.
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
		if !p.waiting() || !p.hire() {
			returned = true
			return
		}
	}
}

// take is what waits longest, or nil.
func (p *Pool[T, P]) take() P {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		if p.line = p.in.TakeAll(); p.line == nil {
			return nil
		}
	}
	v := p.line
	p.line = v.InboxHook().Unlink()
	return v
}

func (p *Pool[T, P]) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line != nil || !p.in.Empty()
}

// Close gives the pool's goroutines back. What runs or is queued is not touched.
func (p *Pool[T, P]) Close() { p.goroutines.Release() }
