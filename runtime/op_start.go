package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Sink receives the result of an operation in place of a future. Complete is called once, usually
// holding the turn of the connection's reactor: it must not block or wait for an operation.
type Sink = reactor.Sink

// submitOpts determines how an operation is submitted and where its result goes.
type submitOpts struct {
	mode reactor.SubmitMode
	sink Sink // if not nil, gets the result, with tag, in place of the future
	tag  uint64
}

// Start starts op and returns its future. It checks bounds, permissions and the
// connection's state, leases the local memory, and waits on ctx for room in the send queue;
// on a managed connection an operation that consumes a receive of the peer also waits for a
// credit. It does not wait for the operation. The local memory is the device's until the
// future is settled, even if the caller stops waiting. In steady state it allocates
// nothing, except for windows, several pieces, and transfers larger than one work request.
//
// Immediate errors, with which nothing was started: ErrReleased for released memory,
// ErrRemoteRange and ErrPermission for remote memory, ErrTooLarge, ErrInvalid for
// another runtime's memory and for invalid requests, the connection's cause, the
// context's error, ErrNilContext. Errors of the future: *WCError, when the connection
// has failed; its Err may report the cause slightly later than the future.
func (c *Conn) Start(ctx context.Context, op *Op) (Future, error) {
	return c.start(ctx, op, submitOpts{})
}

// Do starts op and waits until it has ended. It is the fastest way to execute one
// operation at a time: it does not wake the loop, and the calling goroutine drives
// the reactor. When ctx ends first Do returns the context's error; the operation
// continues, and the local memory is the device's until the operation completes. The
// buffer may be released earlier and then returns to its pool. Otherwise as Start.
func (c *Conn) Do(ctx context.Context, op *Op) (r Result, err error) {
	if op.isSimple(c) {
		return c.transferWait(ctx, op)
	}
	// Below, ctx is used only when the operation or the wait has ended: until then
	// no user code may keep the goroutine from driving.
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return r, err
	}
	f, err := c.start(asked, op, submitOpts{mode: reactor.NoWakeup})
	if err != nil {
		return r, asked.Cause(ctx, err)
	}
	return reactor.Await(ctx, asked, f)
}

// StartTo is Start with a sink, which receives the result with tag. If StartTo
// fails, sink is not called; otherwise it may be called before StartTo returns.
func (c *Conn) StartTo(ctx context.Context, op *Op, sink Sink, tag uint64) error {
	return c.startTo(ctx, op, submitOpts{sink: sink, tag: tag})
}

// TryStartTo is StartTo that never blocks: it returns ErrQueueFull if the send queue is
// full, and ErrNoCredit if the peer has no free receive. It never starts an operation
// larger than one work request: ErrPieces. It may be called from the turn, and from a Sink.
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
	if op.kind == startTransfer && op.several == nil { // the common case: the shortest path
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

// Batch starts operations of a connection that are awaited together. They are ordinary
// operations of the connection and keep their order with the others, but do not each
// wake a sleeping loop: the goroutine that awaits one of the futures posts all of
// them, with one doorbell. It is for a goroutine that starts many operations and then
// awaits them: waking the loop in between would cost more than the operations.
//
//	b := conn.Batch()
//	for i := range fs {
//		fs[i], err = b.Start(ctx, &ops[i])
//	}
//	for _, f := range fs {
//		_, err = f.Await(ctx)
//	}
//
// Started operations are posted when a goroutine awaits an operation of that
// reactor or calls Flush, and within a second at the latest. If the send queue
// is full, a Batch waits for room like any other submitter, and its started operations
// are posted then. A Batch is a value, owns nothing, and may be used from any goroutine.
type Batch struct{ c *Conn }

// Batch returns a Batch of the connection.
func (c *Conn) Batch() Batch { return Batch{c} }

// Start is [Conn.Start] in the batch.
func (b Batch) Start(ctx context.Context, op *Op) (Future, error) {
	return b.c.start(ctx, op, submitOpts{mode: reactor.NoWakeup})
}

// Flush wakes the loop, which posts the started operations. Use it if
// they are not awaited soon. It does not block.
func (b Batch) Flush() { b.c.sh.r.Wake() }
