package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Sink receives the result of an operation instead of a future. Complete is called
// once, usually holding the turn of the connection's reactor: it must not
// block, and not wait for an operation.
type Sink = reactor.Sink

// submitOpts is how an operation is started and where its result goes.
type submitOpts struct {
	mode reactor.SubmitMode
	sink Sink // gets the result, with tag, in the future's place
	tag  uint64
}

// Start starts op and returns its future. It checks bounds, permission and the connection's
// state, leases the local memory, and waits on ctx for room: in the send queue, and for what
// takes a receive of the peer's on a managed connection for a credit. It does not wait for the
// operation. The local memory is the device's until the future is settled, whoever stops
// waiting. In steady state it allocates nothing, but for windows, several pieces, and what is
// larger than one work request.
//
// Errors at once, with which nothing was started: ErrReleased for memory given back,
// ErrRemoteRange and ErrPermission for remote memory, ErrTooLarge, ErrInvalid for another
// runtime's memory and what no device takes, the connection's cause, the context's error,
// ErrNilContext. Errors of the future: *WCError; the connection has
// failed then, or is about to: its Err may know the cause a moment later.
func (c *Conn) Start(ctx context.Context, op *Op) (Future, error) {
	return c.start(ctx, op, submitOpts{})
}

// Do starts op and waits until it has ended: the fastest way for one operation at a time,
// because the reactor is not woken, and the calling goroutine drives it. When ctx ends first
// it returns its error; the operation goes on, and the local memory is the device's until it
// completes: release the buffer as always, it goes back to its pool then. Otherwise as Start.
func (c *Conn) Do(ctx context.Context, op *Op) (r Result, err error) {
	if op.isSimple(c) {
		return c.transferWait(ctx, op)
	}
	// ctx is asked once, before: between start and Await nothing may happen that keeps the
	// goroutine from driving.
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return r, err
	}
	f, err := c.start(asked, op, submitOpts{mode: reactor.NoWakeup})
	if err != nil {
		return r, asked.Why(ctx, err)
	}
	return reactor.Await(ctx, asked, f)
}

// StartTo is Start that has the result, with tag, given to sink. With an error sink is not
// called; it may be called before StartTo returns.
func (c *Conn) StartTo(ctx context.Context, op *Op, sink Sink, tag uint64) error {
	return c.startTo(ctx, op, submitOpts{sink: sink, tag: tag})
}

// TryStartTo is StartTo that never waits: ErrQueueFull when it would have to, because the send
// queue is full or the peer has no receive free (ErrNoCredit). An operation that is larger
// than one work request carries it never starts: ErrPieces. It may be called from the turn,
// and from a Sink.
func (c *Conn) TryStartTo(op *Op, sink Sink, tag uint64) error {
	return c.startTo(context.Background(), op, submitOpts{sink: sink, tag: tag, mode: reactor.NonBlock})
}

func (c *Conn) startTo(ctx context.Context, op *Op, w submitOpts) error {
	if w.sink == nil {
		return fmt.Errorf("%w: an operation without a sink", ErrInvalid)
	}
	_, err := c.start(ctx, op, w)
	return err
}

// start starts op, and returns its future unless it has a sink.
func (c *Conn) start(ctx context.Context, op *Op, w submitOpts) (f Future, err error) {
	if op.kind == startTransfer && op.several == nil { // most: the shortest way
		var t reactor.Transfer
		t.Opcode, t.Flags, t.Imm, t.Sink, t.Tag = op.opcode, op.flags, op.imm, w.sink, w.tag
		return c.transfer(ctx, &t, &op.one[0], &op.remote, w.mode)
	}
	switch op.kind {
	case startTransfer:
		return c.transferV(ctx, op, w)
	case startSend:
		return c.send(ctx, op.locals(), op.sendRequest(), w)
	case startSendBytes:
		return c.sendBytes(ctx, op.bytes, op.sendRequest(), w)
	case startAtomic, startAtomicWrite, startFlush:
		return c.atomic(ctx, op, w)
	case startBind:
		if err = op.window.of(c); err == nil {
			_, f, err = op.window.bind(ctx, op.bind, op.flags, w)
		}
		return f, err
	case startInvalidate:
		if err = op.window.of(c); err == nil {
			f, err = op.window.invalidate(ctx, op.flags, w)
		}
		return f, err
	case startPostRecv:
		return c.postRecv(op.locals(), w)
	}
	return f, op.errNoOp()
}

// Batch starts operations of a connection that its user waits for together. They are
// the same as the connection's own, and keep their order with them, but a reactor
// that sleeps is not woken for each: who awaits one of the futures posts all of
// them, with one doorbell. It is for a goroutine that starts many operations, then
// awaits them: waking the reactor meanwhile would cost it more than the operations.
//
//	b := conn.Batch()
//	for i := range fs {
//		fs[i], err = b.Start(ctx, &ops[i])
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

// Start is [Conn.Start] in the batch.
func (b Batch) Start(ctx context.Context, op *Op) (Future, error) {
	return b.c.start(ctx, op, submitOpts{mode: reactor.NoWakeup})
}

// Flush has what was started posted by the reactor's own goroutine, as if it had not
// been started in a batch. For who does not await it soon. It does not block.
func (b Batch) Flush() { b.c.sh.r.Wake() }
