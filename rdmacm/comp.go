package rdmacm

import (
	"context"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// GetSendComp waits for the next completion of a send, read or write of the queue pair, and takes it. It
// returns the error of ctx when ctx ends first, and verbs.ErrClosed when the queue pair is destroyed. A
// request that failed is no error of GetSendComp: see verbs.WC.Err. With ErrShared the queue pair has a
// completion queue that the program has made: CQ.Next takes its completions.
//
// Implements: rdma_get_send_comp.
func (id *ID) GetSendComp(ctx context.Context) (verbs.WC, error) {
	if id == nil {
		return verbs.WC{}, errNil("rdma_get_send_comp")
	}
	return id.comp(ctx, "rdma_get_send_comp", id.SendCQ())
}

// GetRecvComp waits for the next completion of a receive of the queue pair. In all other respects it is
// like GetSendComp.
//
// Implements: rdma_get_recv_comp.
func (id *ID) GetRecvComp(ctx context.Context) (verbs.WC, error) {
	if id == nil {
		return verbs.WC{}, errNil("rdma_get_recv_comp")
	}
	return id.comp(ctx, "rdma_get_recv_comp", id.RecvCQ())
}

func (id *ID) comp(ctx context.Context, op string, c *CQ) (verbs.WC, error) {
	switch {
	case c == nil:
		return verbs.WC{}, named(op, id, ErrNoQP)
	case !c.private:
		return verbs.WC{}, failure(op, id, syscall.EINVAL, ErrShared)
	}
	return c.Next(ctx)
}
