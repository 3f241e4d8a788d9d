package runtime

import (
	"context"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// The synchronous forms. Each posts and waits, which is the fastest way for one
// operation at a time: the reactor is not woken, because the calling goroutine
// drives it. Several operations at a time are faster as futures.
//
// When ctx ends first they return its error; the operation goes on, and the local
// memory is the device's until it completes: release the buffer as always, it goes
// back to its pool then. Otherwise as the forms that return a future.

// WriteWait is Write that waits for the operation.
//
// Implements: ibv_post_send, RDMA_WRITE.
func (c *Conn) WriteWait(ctx context.Context, local Slice, remote Remote) (Result, error) {
	return c.transferWait(ctx, verbs.WRRDMAWrite, &local, &remote)
}

// ReadWait is Read that waits for the operation.
//
// Implements: ibv_post_send, RDMA_READ.
func (c *Conn) ReadWait(ctx context.Context, local Slice, remote Remote) (Result, error) {
	return c.transferWait(ctx, verbs.WRRDMARead, &local, &remote)
}

// SendWait is Send that waits until the peer's device has the message.
//
// Implements: ibv_post_send, SEND.
func (c *Conn) SendWait(ctx context.Context, local Slice) (Result, error) {
	return postedWait(ctx, func(asked reactor.Asked) (Future, error) {
		return c.send(asked, []Slice{local}, reactor.Send{Opcode: verbs.WRSend}, way{manner: reactor.Quiet})
	})
}

// postedWait waits for what post posts quietly, and gives the wait up when ctx ends first.
// ctx is asked once, before: between post and Await nothing may happen that keeps the
// goroutine from driving.
func postedWait(ctx context.Context, post func(reactor.Asked) (Future, error)) (r Result, err error) {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return r, err
	}
	f, err := post(asked)
	if err == nil {
		if r, err = f.Await(asked); err != nil {
			f.Discard() // nothing, if it was settled
		}
	}
	return r, asked.Why(ctx, err)
}
