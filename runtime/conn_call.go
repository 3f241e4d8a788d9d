package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Call sends a message and waits for the answer: op is a [SendOp], [SendVOp] or [SendBytesOp], and the
// answer is the next message of the peer, in the order of the calls. So the peer must answer each message
// with one message, in order, as a loop of RecvWait and [Message.Reply] does. Several goroutines may call
// at the same time: the messages are sent in the order in which the calls wait. Call takes part in the
// order of Recv, RecvTo and RecvWait; a connection that calls should not call these.
//
// Call posts the message and waits for the answer within one hold of the reactor's turn, so it costs less
// than Send and RecvWait. Like Send it waits for a credit and for room in the send queue. If ctx ends
// before the answer comes, Call returns the context's error, and the answer is released when it comes: no
// later call gets it.
//
// In steady state Call does not allocate for one piece of memory. Errors: those of Start, ErrMode for a
// raw connection, ErrInvalid for another operation, and the cause of the connection if it ends first.
func (c *Conn) Call(ctx context.Context, op *Op) (Message, error) {
	asked, err := reactor.DoneOf(ctx)
	switch {
	case err != nil:
	case c.opts.Raw:
		err = ErrMode
	case op.kind != startSend && op.kind != startSendBytes:
		if err = op.errNoOp(); op.kind != startRefused {
			err = fmt.Errorf("%w: Call with an operation that is not a message", ErrInvalid)
		}
	}
	if err != nil {
		return Message{}, asked.Cause(ctx, err)
	}
	w := recvWaiterPool.Get().(*recvWaiter)
	if _, err := c.start(asked, op, submitOpts{mode: reactor.NoWakeup, sink: (*unheard)(c), filled: &w.slot}); err != nil {
		w.give()
		return Message{}, asked.Cause(ctx, err)
	}
	driver := c.sh.r.Driver()
	p, f := c.rt.messages.New(driver)
	w.promise, w.call = p, true
	c.addRecvWaiter(w, driver != nil)
	m, err := reactor.Await(ctx, asked, f)
	if err != nil {
		f.Discard() // without effect if the future had the error
	}
	return m, err
}

// Reply releases the message and sends an answer on its connection: op is a [SendOp], [SendVOp] or
// [SendBytesOp], which may send the bytes of the message itself. Reply waits for a credit and for room in
// the send queue, until ctx ends. It posts the answer before it returns if no other goroutine runs the
// reactor, and does not wait for its end: if the answer cannot be delivered, the connection fails.
//
// Errors: ErrMessage if the message was released, ErrInvalid for another operation, those of Start. If
// Reply returns an error, nothing was sent, and the message is still to be released, unless the error is
// ErrMessage.
func (m Message) Reply(ctx context.Context, op *Op) error {
	s := m.slot
	if s == nil || s.released.Load() != m.number {
		return ErrMessage
	}
	if op.kind != startSend && op.kind != startSendBytes {
		return fmt.Errorf("%w: Reply with an operation that is not a message", ErrInvalid)
	}
	c := s.c.Load()
	if _, err := c.start(ctx, op, submitOpts{mode: reactor.NoWakeup, sink: (*unheard)(c)}); err != nil {
		return err
	}
	err := m.Release()
	if !c.sh.r.TryPass() {
		c.sh.r.Wake()
	}
	return err
}

// unheard is the sink of a message whose end is not reported. If the device cannot deliver it, the queue
// pair fails, and with it the connection. If the device refuses to post it, unheard fails the connection:
// otherwise a Call would wait for ever, or get the answer of the next.
type unheard Conn

// Complete implements [Sink].
func (u *unheard) Complete(_ SinkContext, _ Result, err error) { (*Conn)(u).failRefused(err) }
