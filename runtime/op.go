package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
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
	// quiet is for a caller that awaits the future at once, on this goroutine:
	// the reactor is not woken, because the caller drives it.
	quiet bool
	try   bool // answer reactor.ErrQueueFull instead of waiting
	sink  Sink // gets the result, with tag, in the future's place
	tag   uint64
}

// Op is an operation as a value, made by the functions below: for those who start
// it later, or whose result goes to a Sink. It owns nothing. The zero Op is not
// an operation.
type Op struct {
	kind                 startKind
	local                Slice
	bytes                []byte
	remote               Remote
	imm                  uint32
	compareOrAdd, swapTo uint64
}

type startKind uint8

const (
	startNone startKind = iota
	startWrite
	startWriteImm
	startRead
	startSend
	startSendBytes
	startCompareAndSwap
	startFetchAndAdd
	startPostRecv
)

// WriteOp is Conn.Write as a value.
func WriteOp(local Slice, remote Remote) Op {
	return Op{kind: startWrite, local: local, remote: remote}
}

// WriteImmOp is Conn.WriteImm as a value.
func WriteImmOp(local Slice, remote Remote, imm uint32) Op {
	return Op{kind: startWriteImm, local: local, remote: remote, imm: imm}
}

// ReadOp is Conn.Read as a value.
func ReadOp(local Slice, remote Remote) Op { return Op{kind: startRead, local: local, remote: remote} }

// SendOp is Conn.Send as a value.
func SendOp(local Slice) Op { return Op{kind: startSend, local: local} }

// SendBytesOp is Conn.SendBytes as a value. p is copied when the operation is
// started, and must stay as it is till then.
func SendBytesOp(p []byte) Op { return Op{kind: startSendBytes, bytes: p} }

// CompareAndSwapOp is Conn.CompareAndSwap as a value.
func CompareAndSwapOp(remote Remote, compare, swap uint64) Op {
	return Op{kind: startCompareAndSwap, remote: remote, compareOrAdd: compare, swapTo: swap}
}

// FetchAndAddOp is Conn.FetchAndAdd as a value.
func FetchAndAddOp(remote Remote, add uint64) Op {
	return Op{kind: startFetchAndAdd, remote: remote, compareOrAdd: add}
}

// PostRecvOp is Conn.PostRecv as a value.
func PostRecvOp(local Slice) Op { return Op{kind: startPostRecv, local: local} }

// Start starts op and has its result, with tag, given to sink. It waits for room
// as the method does that op stands for, and has its errors; with an error
// nothing was started and sink is not called. Sink may be called before Start
// returns. In steady state it allocates nothing, but for PostRecvOp.
func (c *Conn) Start(ctx context.Context, op *Op, sink Sink, tag uint64) error {
	return c.start(ctx, op, way{sink: sink, tag: tag})
}

// TryStart is Start that never waits: reactor.ErrQueueFull when it would have
// to, because the send queue is full, the peer has no receive free (ErrNoCredit), or
// the operation is larger than one work request carries. It may be called from
// the turn, and from a Sink.
func (c *Conn) TryStart(op *Op, sink Sink, tag uint64) error {
	return c.start(context.Background(), op, way{sink: sink, tag: tag, try: true})
}

func (c *Conn) start(ctx context.Context, op *Op, w way) error {
	if w.sink == nil {
		return fmt.Errorf("%w: an operation without a sink", reactor.ErrRequest)
	}
	var err error
	switch op.kind {
	case startWrite:
		_, err = c.oneSided(ctx, verbs.WRRDMAWrite, []Slice{op.local}, op.remote, 0, w)
	case startWriteImm:
		_, err = c.oneSided(ctx, verbs.WRRDMAWriteWithImm, []Slice{op.local}, op.remote, op.imm, w)
	case startRead:
		_, err = c.oneSided(ctx, verbs.WRRDMARead, []Slice{op.local}, op.remote, 0, w)
	case startSend:
		_, err = c.send(ctx, []Slice{op.local}, reactor.Send{Opcode: verbs.WRSend}, w)
	case startSendBytes:
		_, err = c.sendBytes(ctx, op.bytes, w)
	case startCompareAndSwap:
		_, err = c.atomic(ctx, &reactor.Send{Opcode: verbs.WRAtomicCmpAndSwp, Compare: op.compareOrAdd, Swap: op.swapTo}, op.remote, w)
	case startFetchAndAdd:
		_, err = c.atomic(ctx, &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Add: op.compareOrAdd}, op.remote, w)
	case startPostRecv:
		err = c.postRecv([]Slice{op.local}, &rawRecv{c: c, sink: w.sink}, w.tag)
	default:
		err = fmt.Errorf("%w: the zero Op", reactor.ErrRequest)
	}
	return err
}

// RecvTo is Recv whose message goes to sink; it takes its turn among those who
// ask by Recv. The wait cannot be given up: close the connection. Without a
// connection or in raw mode sink is called at once, on this goroutine. In steady
// state it allocates nothing.
func (c *Conn) RecvTo(sink MessageSink) {
	switch {
	case c.opts.Raw:
		sink.Received(Message{}, ErrMode)
	case isGone(c):
		sink.Received(Message{}, c.cause.Load())
	default:
		c.want(futures.Promise[Message]{}, sink, false)
	}
}

// Keep is op with a copy of its bytes, if it has any: it may be started after their
// owner has changed them. Slices are not copied.
func (op Op) Keep() Op {
	if op.bytes != nil {
		op.bytes = append(make([]byte, 0, len(op.bytes)), op.bytes...)
	}
	return op
}
