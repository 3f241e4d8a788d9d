package runtime

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
)

// handlers is the pool of goroutines that run user functions, which may block. So the goroutine
// that queues a function (a reactor's callback goroutine) is not blocked.
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

// newHandlers starts a pool that runs at most n functions at the same time. A panic of a function
// goes to onPanic, which is Config.OnPanic.
func newHandlers(n int, onPanic func(*PanicError)) (*handlers, error) {
	return exec.New(n, func(h *handler) {
		defer func() {
			if v := recover(); v != nil {
				_ = reactor.Recovered(v, onPanic) // Recovered itself reports the error that it returns
			}
		}()
		h.fn(h.r, h.err)
	})
}
