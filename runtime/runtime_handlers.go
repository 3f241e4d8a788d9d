package runtime

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
)

// handlers is a pool of goroutines that run user functions. A user function may block, and does not
// block the goroutine that has queued the function (a reactor's callback goroutine).
type handlers = exec.Pool[handler, *handler]

// handler is one call of Runtime.Handle.
type handler struct {
	fn   func(Result, error)
	r    Result
	err  error
	hook ring.Hook[handler]
}

// InboxHook returns the link to the next handler in the pool's queue.
func (h *handler) InboxHook() *ring.Hook[handler] { return &h.hook }

// newHandlers starts a pool that runs at most n functions at the same time. The argument onPanic is
// Config.OnPanic, which gets the panics of the functions.
func newHandlers(n int, onPanic func(*PanicError)) (*handlers, error) {
	return exec.New(n, func(h *handler) {
		defer func() {
			if v := recover(); v != nil {
				_ = reactor.Recovered(v, onPanic) // Recovered has passed the error to onPanic
			}
		}()
		h.fn(h.r, h.err)
	})
}
