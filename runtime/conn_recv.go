package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// recvSlot is one receive of a managed connection, with its buffer.
//
//	free ──post──> posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	                  │ flushed              │ connection gone   │ connection gone
//	                  └──────────────────────┴───────────────────┴──────────> freed
//
// The device owns the buffer in the state posted, the connection owns it in the state arrived, and
// the user owns it in the state held.
type recvSlot struct {
	c   *Conn
	i   int
	buf Buffer
	// state is odd while the slot is held, and even otherwise. Conn.handOut adds 1, and copies the
	// new state into the Message. Release and disposeMessage add 1 to this copy by a CAS, so a
	// second Release fails. When disposeMessage also frees the slot, it adds 2 more.
	state atomic.Uint64
	// The next six fields describe the arrived message. The holder writes them before the slot is
	// handed out.
	nth  uint64 // the number of this message, counted from 1 in the order of arrival
	n    int    // the message's length in bytes
	imm  uint32
	with bool    // imm is valid
	data bool    // the message is a SEND, with a payload
	shut *Window // the window that the message invalidated
	sge  [1]verbs.SGE
	hook ring.Hook[recvSlot]
}

// InboxHook returns the link for Conn.backIn.
func (s *recvSlot) InboxHook() *ring.Hook[recvSlot] { return &s.hook }

func (s *recvSlot) post() error {
	return s.c.q.PostRecv(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// postLater submits a receive whose credit is not granted yet. The reactor posts the receive in the
// pass that posts the frame with the credit, before the frame (conn_credits.go). So all receives
// that wait for one frame share one doorbell.
func (s *recvSlot) postLater() error {
	return s.c.q.PostRecvLater(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:])
}

func (s *recvSlot) free() { s.buf.drop() }

// makeRecvs allocates the buffers of n receives.
func (c *Conn) makeRecvs(n int) error {
	c.recvs = make([]recvSlot, n)
	for i := range c.recvs {
		s := &c.recvs[i]
		buf, err := c.rt.mem.allocOnNode(c.sh.node, frameSize+c.opts.MessageSize)
		if err != nil {
			c.recvs = c.recvs[:i]
			return err
		}
		s.c, s.i, s.buf = c, i, buf
		s.sge[0] = buf.Slice().SGE()
	}
	return nil
}

// Message is a received message. Its data lies in a receive buffer of the connection. The caller
// owns this buffer until Release. A connection has Options.RecvCredits buffers for messages. While
// the caller holds all of them, the peer cannot send messages.
type Message struct {
	Data []byte // nil for a WRITE with immediate data
	// Imm is the immediate data, in host byte order. It is valid if HasImm is true. Written is the
	// number of bytes that a WRITE with immediate data wrote; for a SEND it is 0.
	Imm     uint32
	HasImm  bool
	Written int
	// Invalidated is the window that the peer invalidated with this message, or nil.
	Invalidated *Window

	slot   *recvSlot
	number uint64
}

// Release gives the buffer back to the connection. The connection posts the receive again and
// returns the credit to the peer. The caller must not use Data afterwards. If the message was
// released before, Release returns ErrMessage. Release blocks only to free a large buffer of a
// connection that is ending or gone (see Buffer.Release).
func (m Message) Release() error {
	s := m.slot
	if s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return ErrMessage
	}
	c := s.c
	if err := s.postLater(); err != nil { // the connection is ending or gone
		return s.buf.Release()
	}
	c.returnCredits(1)
	return nil
}

// MessageSink receives a message in place of a future. The reactor calls Received one time for each
// call of RecvTo, while the turn is held. So Received must not block. If err is not nil, m is the
// zero Message, and no more messages arrive.
type MessageSink interface {
	Received(m Message, err error)
}

// recvWaiter is one wait for a message.
type recvWaiter struct {
	hook    ring.Hook[recvWaiter]
	promise futures.Promise[Message]
	sink    MessageSink // if not nil, receives the message in place of promise
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

// Recv returns the future of the next message. The futures get the messages in the order of the
// calls of Recv. If a future is discarded, its message goes to the next call. When no more messages
// can arrive, the future fails with the cause of the connection, such as ErrPeerClosed. Recv does
// not block. In steady state it does not allocate.
func (c *Conn) Recv() futures.Future[Message] { return c.recv(false) }

// RecvWait waits for the next message. If ctx ends first, no message is lost: the message goes to
// the next call of Recv, RecvTo or RecvWait.
func (c *Conn) RecvWait(ctx context.Context) (Message, error) {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return Message{}, err
	}
	return reactor.Await(ctx, asked, c.recv(c.sh.r.Driver() != nil))
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
		c.addRecvWaiter(futures.Promise[Message]{}, sink, false)
		return
	}
	w := &recvWaiter{sink: sink}
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
	c.addRecvWaiter(p, nil, quiet)
	return f
}

// addRecvWaiter queues a wait for a message. The result goes to sink, or to p if sink is nil. If
// quiet is true, addRecvWaiter does not wake the loop, because the caller is about to drive the
// reactor.
func (c *Conn) addRecvWaiter(p futures.Promise[Message], sink MessageSink, quiet bool) {
	w := recvWaiterPool.Get().(*recvWaiter)
	w.promise, w.sink = p, sink
	c.wantIn.Push(w)
	c.sh.r.Schedule(&c.matchTask, quiet)
}

// match delivers arrived messages to the waiters, oldest first. If waiters are left, it sends a
// credit update if one is due. Holder only.
func (c *Conn) match() {
	for w := c.wantIn.TakeAll(); w != nil; {
		next := w.hook.Unlink()
		c.recvWaiters = append(c.recvWaiters, w)
		w = next
	}
	done := 0
	for ; done < len(c.recvWaiters); done++ {
		// A message whose future was discarded must be delivered before later messages. So before
		// each delivery, put the messages of discarded futures back into c.arrived.
		c.takeBack()
		w := c.recvWaiters[done]
		var m Message
		var err error
		switch {
		case !w.wanted():
			err = futures.ErrDiscarded // Conn.answer frees the waiter; the user does not see this error
		case len(c.arrived) > 0:
			m = c.handOut(c.arrived[0])
			c.arrived = append(c.arrived[:0], c.arrived[1:]...)
		case c.drained:
			if err = c.cause.Load(); err == nil {
				err = ErrConnClosed
			}
		default:
			c.recvWaiters = served(c.recvWaiters, done, &c.pruned)
			c.starving.Store(true)
			c.sendCreditUpdate()
			return
		}
		c.answer(w, m, err)
	}
	c.recvWaiters = served(c.recvWaiters, done, &c.pruned)
	if c.starving.Load() {
		c.starving.Store(false)
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

// end settles the promise of w, and gives w back to the pool.
func (w *recvWaiter) end(m Message, err error) {
	p := w.promise
	w.give()
	p.Settle(m, err)
}

// Complete implements reactor.Sink. It delivers the message to the user's sink.
func (w *recvWaiter) Complete(SinkContext, Result, error) {
	sink, m, err := w.sink, w.m, w.err
	w.give()
	sink.Received(m, err)
}

// give gives w back to the pool.
func (w *recvWaiter) give() {
	w.promise, w.sink, w.m, w.err = futures.Promise[Message]{}, nil, Message{}, nil
	recvWaiterPool.Put(w)
}

func (c *Conn) handOut(i int) Message {
	s := &c.recvs[i]
	number := s.state.Add(1) // now odd, which means held
	m := Message{slot: s, number: number, Imm: s.imm, HasImm: s.with, Invalidated: s.shut}
	if s.data {
		m.Data = s.buf.Bytes()[frameSize : frameSize+s.n]
	} else {
		m.Written = s.n
	}
	return m
}

// disposeMessage takes back a message whose future was discarded. The message keeps its place in
// the order of arrival.
func disposeMessage(m Message, err error) {
	s := m.slot
	if err != nil || s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return
	}
	c := s.c
	c.backIn.Push(s)
	c.sh.r.Schedule(&c.matchTask, false)
	// If the connection is gone, there may be no further call of takeBack, so free the slot here.
	// But takeBack may have taken the slot from backIn already. If the slot was then handed out
	// again, the CAS fails. If takeBack has freed the slot, the call of free does nothing.
	if isGone(c) && s.state.CompareAndSwap(m.number+1, m.number+3) {
		s.free()
	}
}

func isGone(c *Conn) bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// takeBack takes the messages of discarded futures from c.backIn. It inserts them into c.arrived,
// in the order of arrival. If the connection is gone, it frees their slots instead. Holder only.
func (c *Conn) takeBack() {
	for s := c.backIn.TakeAll(); s != nil; {
		next := s.hook.Unlink()
		if isGone(c) {
			s.free()
		} else {
			at, _ := slices.BinarySearchFunc(c.arrived, s.nth, func(i int, nth uint64) int { return cmp.Compare(c.recvs[i].nth, nth) })
			c.arrived = slices.Insert(c.arrived, at, s.i)
		}
		s = next
	}
}

// freeArrived frees the slots of the messages that have arrived and that no Recv has got.
func (c *Conn) freeArrived() {
	for _, i := range c.arrived {
		c.recvs[i].free()
	}
	c.arrived = nil
}

// connSink is the sink of the receives and the credit updates of a managed connection.
type connSink Conn

// Complete implements reactor.Sink.
func (s *connSink) Complete(_ SinkContext, r Result, err error) { (*Conn)(s).received(r, err) }

func (c *Conn) received(r Result, err error) {
	if r.Kind != reactor.KindRecv {
		if c.creditDue && err == nil {
			c.creditDue = false
			c.sendCreditUpdate()
		}
		return
	}
	s := &c.recvs[r.Tag]
	if err != nil {
		s.free()
		// The queue calls the function of OnFail for a failed completion, and the function of OnFlush
		// for a flush without a known cause. It calls neither function if the device refused to post
		// a receive, so fail the connection here.
		if _, completed := errors.AsType[*verbs.WCError](err); !completed && c.state <= connOpen {
			c.sh.r.Defer(func() { c.fail(err) })
		}
		return
	}
	if err := c.take(s, r); err != nil {
		s.free()
		if c.state == connConnecting {
			// Fail later: this method may run in Reactor.Flush, called by Conn.setup, which still
			// uses the connection.
			c.sh.r.Defer(func() { c.fail(err) })
			return
		}
		c.fail(err)
	}
}

// take processes the receive s, which has completed with the result r. It returns an
// error if the peer has violated the protocol.
func (c *Conn) take(s *recvSlot, r Result) error {
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	if s.data = r.Opcode != verbs.WCRecvRDMAWithImm; !s.data {
		s.n = int(r.Bytes)
	} else {
		f, bad := proto.ParseFrame(s.buf.Bytes(), int(r.Bytes))
		if bad != nil {
			return (*ProtocolError)(bad)
		}
		// On the dialing side, c.credits is nil before ESTABLISHED. The dialing side has sent
		// nothing yet, so the peer has no credit to return.
		if f.Credits > 0 && (c.credits == nil || !c.credits.Restore(int(f.Credits))) {
			return errCredits(f.Credits)
		}
		if f.Kind == proto.Credit {
			if s.post() != nil { // the connection is being closed
				s.free()
			}
			return nil
		}
		s.n = int(f.Length)
	}
	if s.shut = nil; r.Flags&verbs.WCWithInv != 0 {
		s.shut = c.invalidated(r.Imm)
	}
	c.arrivals++ // a SEND or a WRITE with immediate data, which used a credit
	s.nth = c.arrivals
	c.arrived = append(c.arrived, s.i)
	if len(c.recvWaiters) > 0 {
		c.match()
	}
	return nil
}
