package runtime

import (
	"context"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Batch starts operations of a connection that its user waits for together. They are
// the same as the connection's own, and keep their order with them, but a reactor
// that sleeps is not woken for each: who awaits one of the futures posts all of
// them, with one doorbell. It is for a goroutine that starts many operations, then
// awaits them: waking the reactor meanwhile would cost it more than the operations.
//
//	b := conn.Batch()
//	for i := range fs {
//		fs[i], err = b.Write(ctx, local[i], remote[i])
//	}
//	for _, f := range fs {
//		_, err = f.Await(ctx)
//	}
//
// What is started is posted by the time somebody awaits an operation of that reactor,
// by Flush, or within a second. It waits for room in a full send queue like any
// other, and what stands in it is posted then. A Batch is a value, owns nothing, and
// may be used from any goroutine.
type Batch struct{ c *Conn }

// Batch is the connection for operations that are awaited together.
func (c *Conn) Batch() Batch { return Batch{c} }

// Write is [Conn.Write] in the batch.
func (b Batch) Write(ctx context.Context, local Slice, remote Remote) (Future, error) {
	return b.c.oneToOne(ctx, verbs.WRRDMAWrite, &local, &remote, 0, &way{manner: reactor.Quiet})
}

// Read is [Conn.Read] in the batch.
func (b Batch) Read(ctx context.Context, local Slice, remote Remote) (Future, error) {
	return b.c.oneToOne(ctx, verbs.WRRDMARead, &local, &remote, 0, &way{manner: reactor.Quiet})
}

// Do starts any operation in the batch, as the method of the connection does that op
// stands for, and returns its future.
func (b Batch) Do(ctx context.Context, op *Op) (Future, error) {
	return b.c.startOp(ctx, op, way{manner: reactor.Quiet})
}

// PostRecv is [Conn.PostRecv] in the batch.
func (b Batch) PostRecv(locals ...Slice) (Future, error) {
	return b.c.postRecvFuture(locals, way{manner: reactor.Quiet})
}

// Flush has what was started posted by the reactor's own goroutine, as if it had not
// been started in a batch. For who does not await it soon. It does not block.
func (b Batch) Flush() { b.c.sh.r.Wake() }
