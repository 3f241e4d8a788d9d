package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Call sends a message as a question and waits for its answer: op is a [SendOp], [SendVOp] or [SendBytesOp]. The
// peer receives the question with Recv, RecvTo, RecvWait or RecvMany, and answers it with [Message.Reply] or
// [Question.Reply]. Each question has a number, which its answer repeats, so the peer may answer the Calls of a
// connection in any order and beside other messages. What is no answer goes to Recv. Any number of goroutines may
// call at the same time.
//
// A peer that answers with Send in place of Reply has made a mistake: the message goes to Recv, and the Call
// waits until ctx ends.
//
// Call posts the message and waits for the answer within one hold of the reactor's turn, so it costs less
// than Send and RecvWait. Like Send it waits for a credit and for room in the send queue. If ctx ends
// before the answer comes, Call returns the context's error. The answer is then dropped when it comes, as is an
// answer that was not asked for ([Runtime.CallStats]): no other Call gets it.
//
// The answer uses a credit, as any message does. A program that calls must therefore also receive the messages
// that are no answers, and release them: if they hold all receives that the peer may use, no answer can come.
// [Runtime.Stuck] shows such a connection.
//
// In steady state Call does not allocate for one piece of memory. Errors: those of Start, ErrMode for a
// raw connection, ErrInvalid for another operation, and the cause of the connection if it ends first.
func (c *Conn) Call(ctx context.Context, op *Op) (Message, error) {
	asked, err := reactor.Unended(ctx)
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
	w.number = c.newQuestion()
	if _, err := c.start(asked, op, submitOpts{mode: reactor.NoWakeup, sink: (*unheard)(c), filled: &w.slot, number: w.number}); err != nil {
		w.give()
		return Message{}, asked.Cause(ctx, err)
	}
	driver := c.sh.r.Driver()
	p, f := c.rt.messages.New(driver)
	w.promise, w.c = p, c
	c.wantIn.Push(w)
	c.sh.r.Schedule(&c.matchTask, driver != nil)
	m, err := reactor.Await(ctx, asked, f)
	if err != nil {
		f.Discard() // without effect if the future had the error
	}
	return m, err
}

// Reply answers the message, and releases it when the answer was sent: op is a [SendOp], [SendVOp] or
// [SendBytesOp], which may send the bytes of the message itself. The answer to a question ([Message.IsQuestion])
// goes to the Call that has asked. The answer to any other message is a message like any other.
//
// Reply waits for a credit and for room in the send queue, until ctx ends. It posts the answer before it returns
// if no other goroutine runs the reactor, and does not wait for its end: if the answer cannot be delivered, the
// connection fails. To release the message before the answer is known, use [Message.Question].
//
// A message is answered once. Of several Replies to one message, one goes on, and the others return
// ErrAnswered at once and send nothing.
//
// Errors: ErrMessage if the message was released, ErrAnswered, ErrInvalid for another operation, those of Start.
// If Reply returns an error, nothing was sent, and the message is not released by this call. After an error of
// Start it can be answered again.
func (m Message) Reply(ctx context.Context, op *Op) error {
	c, err := m.claim()
	if err != nil {
		return err
	}
	if err := c.reply(ctx, op, m.asked); err != nil {
		m.unclaim()
		return err
	}
	c.posted()
	if err = m.Release(); errors.Is(err, ErrMessage) {
		err = nil // another goroutine has released it meanwhile
	}
	return err
}

// unheard is the sink of a message whose end is not reported. If the device cannot deliver it, the queue
// pair fails, and with it the connection. If the device refuses to post it, unheard fails the connection:
// otherwise a Call would wait for ever.
type unheard Conn

// Complete implements [Sink].
func (u *unheard) Complete(_ SinkContext, _ Result, err error) { (*Conn)(u).failRefused(err) }
