package runtime

import (
	"sync"

	"github.com/panjf2000/ants/v2"

	"github.com/verbena-rdma/verbena/reactor"
)

// handlers runs functions that may block, at most a fixed number at once. Those
// beyond wait in a list, so that whoever submits (the loop of a reactor) never does.
//
//	        running < cap                 backlog empty
//	submit ──────────────> on a worker ──────────────────> worker free
//	   │ else                   ^  │ backlog not empty: the oldest
//	   └──> backlog ────────────┴──┘
type handlers struct {
	pool    *ants.Pool
	cap     int
	onPanic func(*PanicError) // Config.OnPanic

	mu      sync.Mutex // guards what follows; held for some instructions
	running int
	backlog []func()
}

// newHandlers starts the pool, which has a goroutine of its own until close.
func newHandlers(n int, onPanic func(*PanicError)) (*handlers, error) {
	// Handlers' panics are recovered before; what comes here is the program's.
	pool, err := ants.NewPool(n, ants.WithDisablePurge(true), ants.WithNonblocking(true),
		ants.WithPanicHandler(func(v any) { panic(v) }))
	if err != nil {
		return nil, err
	}
	return &handlers{pool: pool, cap: n, onPanic: onPanic}, nil
}

// submit has fn run, soon or after others, exactly once. It does not block. Any
// goroutine, also after close.
func (h *handlers) submit(fn func()) {
	h.mu.Lock()
	if h.running >= h.cap {
		h.backlog = append(h.backlog, fn)
		h.mu.Unlock()
		return
	}
	h.running++
	h.mu.Unlock()
	work := func() { h.work(fn) }
	if h.pool.Submit(work) != nil { // closed, or its last worker is not quite back
		go work()
	}
}

// work runs fn and then what has waited meanwhile.
func (h *handlers) work(fn func()) {
	defer func() {
		if fn == nil {
			return
		}
		// The handler panicked, or ended its goroutine (Goexit).
		if v := recover(); v != nil {
			reactor.Recovered(v, h.onPanic)
		}
		if fn = h.next(); fn != nil {
			go h.work(fn)
		}
	}()
	for fn != nil {
		fn()
		fn = h.next()
	}
}

// next is the function that has waited longest, or nil: then the place is free.
func (h *handlers) next() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.backlog) == 0 {
		h.backlog = nil
		h.running--
		return nil
	}
	fn := h.backlog[0]
	h.backlog[0] = nil
	h.backlog = h.backlog[1:]
	return fn
}

// close ends the pool's goroutine. Handlers that run or wait are not
// touched.
func (h *handlers) close() { h.pool.Release() }
