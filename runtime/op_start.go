package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Sink receives the result of an operation in place of a future. Complete is called one time
// for each operation, usually by the holder of the reactor's turn (the right to run the reactor). The
// reactor does not run meanwhile, so Complete must not block or wait for an operation.
type Sink = reactor.Sink

// submitOpts determines how an operation is submitted and where its result goes.
type submitOpts struct {
	mode reactor.SubmitMode
	sink Sink   // if not nil, gets the result in place of the future
	tag  uint64 // Result.Tag of the result
	// If filled is not nil, the operation is a SEND with a sink that is not submitted. Its slot is stored
	// in *filled, for Queue.PostFilled.
	filled *uint32
	// number is that of the question which a SEND asks, or answers if answers is set; 0 for neither.
	number  uint32
	answers bool
}

// Start starts op and returns its future. It checks bounds, permissions and the connection's state,
// and leases the local memory. It waits for room in the send queue until ctx ends. If the
// connection is managed and the operation consumes a receive of the peer, Start also waits for a
// credit. Start does not wait for the end of the operation. The device owns the local memory until
// the future is settled, even if the caller stops waiting for the future.
//
// In steady state Start allocates only for operations on windows, for operations with several
// pieces of memory, and for transfers larger than one work request.
//
// If Start returns an error, nothing was started. The most common errors are:
//
//	ErrReleased        the local memory was released
//	ErrRemoteRange     the operation exceeds the remote memory
//	ErrPermission      the access flags of the memory do not permit the operation
//	ErrTooLarge        the message is longer than MaxMessage
//	ErrInvalid         the memory is of another runtime, or the request is invalid
//	ErrNilContext      ctx is nil
//	the error of ctx   ctx ended while Start waited
//	Conn.Err           the connection has failed or was closed
//
// The future may fail with a *WCError or with the connection's cause. In both cases the connection
// has failed. Conn.Err may report the cause slightly later than the future.
func (c *Conn) Start(ctx context.Context, op *Op) (Future, error) {
	return c.start(ctx, op, submitOpts{})
}

// Do starts op and waits until op has ended. Do is the fastest way to execute one operation at a
// time: the calling goroutine drives (runs) the reactor, so Do need not wake the reactor's own
// goroutine. If ctx ends before op has ended, Do returns the context's error, and the
// operation continues.
//
// The device owns the local memory until the operation completes. The caller may release a Buffer
// earlier; the Buffer then returns to its pool when the operation completes. In all other respects
// Do is like Start.
func (c *Conn) Do(ctx context.Context, op *Op) (r Result, err error) {
	if op.isSimple(c) {
		return c.transferWait(ctx, op)
	}
	// The methods of ctx may be user code, which could block and so keep this goroutine from
	// driving. Therefore Do calls DoneOf once. Later Do calls methods of ctx only if the operation
	// could not be started, or when the wait has ended.
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return r, err
	}
	f, err := c.start(asked, op, submitOpts{mode: reactor.NoWakeup})
	if err != nil {
		return r, asked.Cause(ctx, err)
	}
	return reactor.Await(ctx, asked, f)
}

// StartTo is Start with a sink in place of the future. The sink receives the result; Result.Tag is
// the argument tag. If StartTo fails, the sink is not called. If StartTo succeeds, the sink may be
// called before StartTo returns.
func (c *Conn) StartTo(ctx context.Context, op *Op, sink Sink, tag uint64) error {
	return c.startTo(ctx, op, submitOpts{sink: sink, tag: tag})
}

// TryStartTo is StartTo, but never blocks. It returns ErrQueueFull if the send queue is full, and
// ErrNoCredit if the peer has no free receive. If the operation is larger than one work request, or a
// message than the peer's receives, it returns ErrPieces. A SendBytesOp of more bytes than the device takes
// inline (Options.Inline) needs a buffer, and so does an operation in whose place another request is sent (FLUSH and
// ATOMIC_WRITE, if the device does not execute them): if none is free, TryStartTo returns ErrNoBuffer, and the runtime makes one meanwhile. Any goroutine may call TryStartTo, even the holder of the reactor's turn, for
// example in a Sink.
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

// Conn.start starts op. If w.sink is nil, it returns the future of op.
func (c *Conn) start(ctx context.Context, op *Op, w submitOpts) (f Future, err error) {
	if op.kind == startTransfer && op.several == nil { // the common case: the shortest path
		var t reactor.Transfer
		t.Opcode, t.Flags, t.Imm, t.Sink, t.Tag = op.opcode, op.flags, op.imm, w.sink, w.tag
		return c.transfer(ctx, &t, &op.one[0], &op.remote, w.mode)
	}
	switch op.kind {
	case startTransfer:
		return c.transferV(ctx, op, w)
	case startSend, startSendBytes:
		var s reactor.Send
		if op.fillSend(&s); op.kind == startSend {
			return c.send(ctx, op.locals(), &s, w)
		}
		return c.sendBytes(ctx, op.bytes, &s, w)
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

// Batch starts operations of a connection without waking the reactor's goroutine. It is for a
// goroutine that starts many operations and then awaits them. When that goroutine awaits the first
// future, it drives the reactor, and so posts all the operations, with one doorbell. Waking the
// reactor's goroutine for each operation would cost more than the operation. All operations of a
// connection are posted in the order in which they were started, with or without a Batch.
//
//	b := conn.Batch()
//	for i := range fs {
//		fs[i], err = b.Start(ctx, &ops[i])
//	}
//	for _, f := range fs {
//		_, err = f.Await(ctx)
//	}
//
// Started operations are posted when a goroutine awaits an operation of the same reactor or calls
// Flush, and within a second at the latest. If the send queue is full, Batch.Start waits for room as
// Conn.Start does. While it waits, the operations started before are posted. A Batch is a value,
// owns nothing, and may be used from any goroutine.
type Batch struct{ c *Conn }

// Batch returns a Batch of the connection.
func (c *Conn) Batch() Batch { return Batch{c} }

// Start is [Conn.Start] without the wake-up of the reactor's goroutine.
func (b Batch) Start(ctx context.Context, op *Op) (Future, error) {
	return b.c.start(ctx, op, submitOpts{mode: reactor.NoWakeup})
}

// TryStartTo is [Conn.TryStartTo] without the wake-up of the reactor's goroutine.
func (b Batch) TryStartTo(op *Op, sink Sink, tag uint64) error {
	return b.c.startTo(context.Background(), op, submitOpts{sink: sink, tag: tag, mode: reactor.NonBlock | reactor.NoWakeup})
}

// Flush wakes the reactor's goroutine, which posts the started operations. Call Flush if no
// goroutine awaits these operations soon. Flush does not block.
func (b Batch) Flush() { b.c.sh.r.Wake() }
