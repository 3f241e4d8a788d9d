package actor

import (
	"sync"
	"sync/atomic"

	"github.com/panjf2000/ants/v2"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// workers run actors on a pool of goroutines, at most a fixed number at once, in
// the order in which they were queued.
//
//	queue ──> in ──TakeAll──> line ──> run
//	   │                       ^ under mu, workers only: who queues takes no lock
//	   └─ fewer than cap busy: one more worker
//
// No wake-up is lost: who queues pushes and then reads busy; a worker that finds
// nothing takes itself off busy and then looks once more. One of the two sees the
// other.
type workers struct {
	pool pool
	cap  int32
	body func() // work, made once
	in   ring.Inbox[core, *core]
	// busy counts workers that run or look. Raised by who starts one, lowered by
	// the worker.
	busy atomic.Int32

	mu   sync.Mutex // guards line; held for some instructions
	line *core      // taken from in, oldest first
}

// pool is an [ants.Pool].
type pool interface {
	Submit(func()) error
	Release()
}

func newWorkers(n int) (*workers, error) {
	// Handlers' panics are caught before; what comes here is the program's.
	pool, err := ants.NewPool(n, ants.WithDisablePurge(true), ants.WithNonblocking(true),
		ants.WithPanicHandler(func(v any) { panic(v) }))
	if err != nil {
		return nil, err
	}
	w := &workers{pool: pool, cap: int32(n)}
	w.body = w.work
	return w, nil
}

// queue has a run once, soon. Any goroutine; it does not block, and in steady
// state allocates nothing.
func (w *workers) queue(a *core) {
	w.in.Push(a)
	model.Fresh("pushed")
	w.call()
}

// call starts a worker if there may be one more.
func (w *workers) call() {
	if w.hire() {
		w.run(w.body)
	}
}

func (w *workers) hire() bool {
	for {
		n := w.busy.Load()
		if n >= w.cap {
			return false
		}
		model.Yield("hire")
		if w.busy.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// run has fn run on the pool, or on a goroutine of its own: the pool is closed, or
// its last worker not quite back. It does not block.
func (w *workers) run(fn func()) {
	if w.pool.Submit(fn) != nil {
		go fn()
	}
}

func (w *workers) work() {
	returned := false
	defer func() {
		if !returned { // a handler ended this goroutine (Goexit)
			w.run(w.body)
		}
	}()
	for {
		model.Fresh("take")
		if a := w.take(); a != nil {
			a.run()
			continue
		}
		model.Fresh("leave")
		w.busy.Add(-1)
		model.Fresh("left")
		if !w.waiting() || !w.hire() {
			returned = true
			return
		}
	}
}

// take is the actor that waits longest, or nil.
func (w *workers) take() *core {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.line == nil {
		if w.line = w.in.TakeAll(); w.line == nil {
			return nil
		}
	}
	a := w.line
	w.line = a.hook.Unlink()
	return a
}

func (w *workers) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line != nil || !w.in.Empty()
}

// close ends the pool. What is queued later runs on goroutines of its own.
func (w *workers) close() { w.pool.Release() }
