package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
)

// MessageSink receives a message in place of a future. The reactor calls Received one time for each
// call of RecvTo, while the turn is held. So Received must not block. If err is not nil, m is the
// zero Message, and no more messages arrive.
type MessageSink interface {
	Received(m Message, err error)
}

// recvWaiter is one wait for a message, or of a Call for its answer.
type recvWaiter struct {
	hook    ring.Hook[recvWaiter]
	c       *Conn
	promise futures.Promise[Message]
	sink    MessageSink // if not nil, receives the message in place of promise
	// number is that of the question for a wait of Conn.Call, and 0 for others. The slot has the filled request of
	// the question. next links the Calls of one place in Conn.calls.
	number uint32
	slot   uint32
	next   *recvWaiter
	// m and err are the result for sink. Only the holder uses these fields.
	m   Message
	err error
}

// wanted implements waiter.
func (w *recvWaiter) wanted() bool { return w.sink != nil || w.promise.Wanted() }

// giveUp implements waiter. The user has discarded the future, and so does not see the error.
func (w *recvWaiter) giveUp() { w.end(Message{}, futures.ErrDiscarded) }

// InboxHook returns the link for Conn.wantIn.
func (w *recvWaiter) InboxHook() *ring.Hook[recvWaiter] { return &w.hook }

var recvWaiterPool = sync.Pool{New: func() any { return new(recvWaiter) }}

// Recv claims the next message, until its future is discarded: to wait for a message with a context, call RecvWait.
// An Await whose context ends does not discard the future. So a program that drops the future then loses the next message,
// and its receive. The futures get the messages in the order of the
// calls of Recv. If a future is discarded, its message goes to the next call. When no more messages
// can arrive, the future fails with the cause of the connection, such as ErrPeerClosed. Recv does
// not block. In steady state it does not allocate.
func (c *Conn) Recv() futures.Future[Message] { return c.recv(false) }

// RecvWait waits for the next message. If a message has arrived and no earlier call waits, RecvWait
// takes it without the reactor. If ctx ends first, no message is lost: the message goes to the next
// call of Recv, RecvTo or RecvWait.
func (c *Conn) RecvWait(ctx context.Context) (m Message, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return m, err
	}
	c.help()
	if q := c.arrived.Load(); q != nil && c.line.Load() == 0 { // as in takeArrived, for one message
		if i, ok := q.Pop(); ok {
			c.handOut(i, &m)
			return m, nil
		}
	}
	return reactor.Await(ctx, asked, c.recv(c.sh.r.Driver() != nil))
}

// RecvMany waits for the next message as RecvWait does, and also takes the messages that have arrived
// behind it. It stores them in ms, oldest first, and returns their number: at least 1 if err is nil, and
// at most len(ms). So one call of a server takes all messages that have arrived since its last call. ms
// must not be empty. In steady state RecvMany does not allocate.
func (c *Conn) RecvMany(ctx context.Context, ms []Message) (n int, err error) {
	if len(ms) == 0 {
		return 0, fmt.Errorf("%w: no room for messages", ErrInvalid)
	}
	if ms[0], err = c.RecvWait(ctx); err != nil {
		return 0, err
	}
	return 1 + c.takeArrived(ms[1:]), nil
}

// takeArrived takes up to len(ms) messages that have arrived, and returns their number. It takes none
// while there are earlier waits or returned messages, because those come first. (If another goroutine
// discards a message between the look at line and the pop, this call may take a message that arrived
// after the discarded one.) Any goroutine may call it; it does not block.
func (c *Conn) takeArrived(ms []Message) (n int) {
	q := c.arrived.Load()
	if q == nil { // no message has arrived yet
		return 0
	}
	var slots [32]uint32
	for n < len(ms) && c.line.Load() == 0 {
		k := q.PopN(slots[:min(len(slots), len(ms)-n)])
		if k == 0 {
			break
		}
		for _, i := range slots[:k] {
			ms[n] = Message{}
			c.handOut(i, &ms[n])
			n++
		}
	}
	return n
}

// RecvTo is like Recv, but delivers the message to sink. Calls of Recv and RecvTo get the messages
// in one common order. The program cannot cancel a RecvTo: if no message comes, sink receives an
// error when the connection has ended. If the connection is already gone, or is raw, sink receives
// an error soon. In steady state RecvTo does not allocate.
func (c *Conn) RecvTo(sink MessageSink) {
	var err error
	switch {
	case c.opts.Raw:
		err = ErrMode
	case isGone(c):
		err = c.cause.Load()
	default:
		w := recvWaiterPool.Get().(*recvWaiter)
		w.sink = sink
		c.addRecvWaiter(w, false)
		return
	}
	w := &recvWaiter{c: c, sink: sink}
	c.line.Add(1)
	c.sh.r.Defer(func() { c.answer(w, Message{}, err) })
}

func (c *Conn) recv(quiet bool) futures.Future[Message] {
	if c.opts.Raw {
		return futures.Ready(Message{}, ErrMode)
	}
	if isGone(c) {
		return futures.Ready(Message{}, c.cause.Load())
	}
	p, f := c.rt.messages.New(c.sh.r.Driver())
	w := recvWaiterPool.Get().(*recvWaiter)
	w.promise = p
	c.addRecvWaiter(w, quiet)
	return f
}

// addRecvWaiter queues a wait for a message. If quiet is true, addRecvWaiter does not wake the loop,
// because the caller is about to drive the reactor.
func (c *Conn) addRecvWaiter(w *recvWaiter, quiet bool) {
	w.c = c
	c.line.Add(1) // until the wait has its result, later calls must not overtake it
	c.wantIn.Push(w)
	c.sh.r.Schedule(&c.matchTask, quiet)
}

// match delivers arrived messages to the waiters, oldest first. If waiters are left, it sends a
// credit update if one is due. Holder only.
func (c *Conn) match() {
	for w := c.wantIn.TakeAll(); w != nil; {
		next := w.hook.Unlink()
		if w.number != 0 {
			c.ask(w)
		} else {
			c.recvWaiters = append(c.recvWaiters, w)
		}
		w = next
	}
	if c.drained {
		c.calls.endAll(c.overCause())
	}
	done := 0
	for ; done < len(c.recvWaiters); done++ {
		// A message whose future was discarded must be delivered before later messages. So before
		// each delivery, move the messages of discarded futures to c.returned.
		c.takeBack()
		w := c.recvWaiters[done]
		var m Message
		var err error
		if !w.wanted() {
			w.giveUp()
			continue
		}
		i, some := c.nextMessage()
		switch {
		case some:
			c.handOut(i, &m)
		case c.drained:
			err = c.overCause()
		default:
			c.recvWaiters = served(c.recvWaiters, done, &c.pruned)
			c.starving.Store(true)
			c.wantLarge()
			c.sendCreditUpdate()
			return
		}
		c.answer(w, m, err)
	}
	c.recvWaiters = served(c.recvWaiters, done, &c.pruned)
	if c.starving.Load() {
		c.noteStarving()
	}
}

// noteStarving sets or clears c.starving. Holder only.
func (c *Conn) noteStarving() {
	if s := len(c.recvWaiters) > 0 || c.calls.open > 0 && c.uncovered(); s != c.starving.Load() {
		c.starving.Store(s)
	}
}

// answer ends the wait w with the result m and err, and takes ownership of w. If w has a
// sink, the reactor calls this sink after the sinks of all operations that ended earlier. If answer
// is called in a pass, the reactor calls the sink at the end of the pass.
func (c *Conn) answer(w *recvWaiter, m Message, err error) {
	if w.sink != nil {
		w.m, w.err = m, err
		c.q.Notify(w)
		return
	}
	w.end(m, err)
}

// end settles the promise of w, and gives w back to the pool. The wait leaves the line only after that:
// if the future was discarded meanwhile, Settle returns the message to the line (disposeMessage), and no
// later message may overtake it.
func (w *recvWaiter) end(m Message, err error) {
	c, p, call := w.c, w.promise, w.number != 0
	w.give()
	p.Settle(m, err)
	if !call {
		c.line.Add(-1)
	}
}

// Complete implements reactor.Sink. It delivers the message to the user's sink.
func (w *recvWaiter) Complete(SinkContext, Result, error) {
	c, sink, m, err := w.c, w.sink, w.m, w.err
	w.give()
	c.line.Add(-1)
	sink.Received(m, err)
}

// give gives w back to the pool.
func (w *recvWaiter) give() {
	w.number, w.c, w.promise, w.sink, w.m, w.err = 0, nil, futures.Promise[Message]{}, nil, Message{}, nil
	recvWaiterPool.Put(w)
}
