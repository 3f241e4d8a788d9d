package runtime

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/exec"
)

// handlers run where they may block, so that whoever queues one (the loop of a
// reactor) never does.
type handlers = exec.Pool[handler, *handler]

// handler is a call of Runtime.Handle.
type handler struct {
	fn   func(Result, error)
	r    Result
	err  error
	hook ring.Hook[handler]
}

// InboxHook links the handler into its pool's queue.
func (h *handler) InboxHook() *ring.Hook[handler] { return &h.hook }

// newHandlers starts the pool. Panics go to onPanic, which is Config.OnPanic.
func newHandlers(n int, onPanic func(*PanicError)) (*handlers, error) {
	return exec.New(n, func(h *handler) {
		defer func() {
			if v := recover(); v != nil {
				_ = reactor.Recovered(v, onPanic) // it has told of what it returns
			}
		}()
		h.fn(h.r, h.err)
	})
}
