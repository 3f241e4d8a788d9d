package runtime

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
)

// handlers run user functions on goroutines that may block, so that the
// goroutine that queues one (the loop of a reactor) does not.
type handlers = exec.Pool[handler, *handler]

// handler is one call of Runtime.Handle.
type handler struct {
	fn   func(Result, error)
	r    Result
	err  error
	hook ring.Hook[handler]
}

// InboxHook returns the link in the pool's queue.
func (h *handler) InboxHook() *ring.Hook[handler] { return &h.hook }

// newHandlers starts the pool. Panics go to onPanic, which is Config.OnPanic.
func newHandlers(n int, onPanic func(*PanicError)) (*handlers, error) {
	return exec.New(n, func(h *handler) {
		defer func() {
			if v := recover(); v != nil {
				_ = reactor.Recovered(v, onPanic) // Recovered has reported the error that it returns
			}
		}()
		h.fn(h.r, h.err)
	})
}
