package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// Sink receives the result of an operation instead of a future. Complete is called
// once, usually holding the turn of the connection's reactor: it must not
// block, and not wait for an operation.
type Sink = reactor.Sink

// MessageSink receives a message instead of a future. Received is called once,
// holding the turn of the connection's reactor: it must not block. With err the
// message is empty, and no other will come.
type MessageSink interface {
	Received(m Message, err error)
}

// way is how an operation is started and where its result goes.
type way struct {
	manner reactor.Manner
	sink   Sink // gets the result, with tag, in the future's place
	tag    uint64
}

// Start starts op and has its result, with tag, given to sink. It waits for room
// as the method does that op stands for, and has its errors; with an error
// nothing was started and sink is not called. Sink may be called before Start
// returns. In steady state it allocates nothing, but for receives, windows and
// several pieces.
func (c *Conn) Start(ctx context.Context, op *Op, sink Sink, tag uint64) error {
	return c.start(ctx, op, way{sink: sink, tag: tag})
}

// TryStart is Start that never waits: reactor.ErrQueueFull when it would have
// to, because the send queue is full, the peer has no receive free (ErrNoCredit), or
// the operation is larger than one work request carries. It may be called from
// the turn, and from a Sink.
func (c *Conn) TryStart(op *Op, sink Sink, tag uint64) error {
	return c.start(context.Background(), op, way{sink: sink, tag: tag, manner: reactor.Try})
}

func (c *Conn) start(ctx context.Context, op *Op, w way) error {
	if w.sink == nil {
		return fmt.Errorf("%w: an operation without a sink", reactor.ErrRequest)
	}
	if op.kind == startOneSided && !op.gathers { // most: the shortest way
		_, err := c.oneToOne(ctx, op.opcode, &op.one[0], &op.remote, op.imm, &w)
		return err
	}
	_, err := c.startOp(ctx, op, w)
	return err
}

// startOp starts op, and returns its future unless it has a sink.
func (c *Conn) startOp(ctx context.Context, op *Op, w way) (f Future, err error) {
	switch op.kind {
	case startOneSided:
		return c.oneSided(ctx, op.opcode, op.locals(), op.remote, op.imm, w)
	case startSend:
		return c.send(ctx, op.locals(), reactor.Send{Opcode: op.opcode, Invalidate: op.remote.RKey}, w)
	case startSendBytes:
		return c.sendBytes(ctx, op.bytes, w)
	case startAtomic:
		return c.atomic(ctx, &reactor.Send{Opcode: op.opcode, Compare: op.compareOrAdd, Add: op.compareOrAdd, Swap: op.swapTo}, op.remote, w)
	case startAtomicWrite:
		return c.atomicWrite(ctx, op.remote, op.swapTo, w)
	case startFlush:
		return c.flush(ctx, op.remote, op.placement, w)
	case startBind:
		if err = op.window.of(c); err == nil {
			_, f, err = op.window.bind(ctx, op.bind, w)
		}
		return f, err
	case startInvalidate:
		if err = op.window.of(c); err == nil {
			f, err = op.window.invalidate(ctx, w)
		}
		return f, err
	case startPostRecv:
		if w.sink == nil {
			return c.postRecvFuture(op.locals(), w)
		}
		return f, c.postRecv(op.locals(), newRawRecv(c, w.sink), w)
	}
	return f, fmt.Errorf("%w: the zero Op", reactor.ErrRequest)
}

// RecvTo is Recv whose message goes to sink; it takes its turn among those who
// ask by Recv. The wait cannot be given up: close the connection. When that is gone,
// or in raw mode, sink is told so soon. In steady state it allocates nothing.
func (c *Conn) RecvTo(sink MessageSink) {
	var err error
	switch {
	case c.opts.Raw:
		err = ErrMode
	case isGone(c):
		err = c.cause.Load()
	default:
		c.want(futures.Promise[Message]{}, sink, false)
		return
	}
	w := &want{sink: sink}
	c.sh.r.Defer(func() { c.answer(w, Message{}, err) })
}
