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

// recvSlot is one posted receive with its buffer.
//
//	free ──post──> posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	                  │ flushed              │ connection gone   │ connection gone
//	                  └──────────────────────┴───────────────────┴──────────> freed
//
// The device has the buffer while posted, the connection while arrived, the
// caller while held.
type recvSlot struct {
	c   *Conn
	i   int
	buf Buffer
	// state is the number of times the slot was handed to a caller, times two,
	// plus one while it is held. Moved by match (hand out) and by Release (CAS);
	// a message knows its number, so a second Release does nothing.
	state atomic.Uint64
	// payload of the arrived message, and its place among all; written by the
	// holder before the slot is handed out.
	nth  uint64
	n    int
	imm  uint32
	with bool    // imm
	data bool    // of a SEND: there is a payload
	shut *Window // that the message invalidated
	sge  [1]verbs.SGE
	hook ring.Hook[recvSlot]
}

// InboxHook links the slot into Conn.backIn.
func (s *recvSlot) InboxHook() *ring.Hook[recvSlot] { return &s.hook }

func (s *recvSlot) post() error {
	return s.c.q.PostRecv(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// postLater is post for a receive that the peer has not been told of: it is with the
// device before the frame that tells it (conn_credits.go), and until then costs no doorbell.
func (s *recvSlot) postLater() error {
	return s.c.q.PostRecvLater(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:])
}

func (s *recvSlot) free() { s.buf.drop() }

// makeRecvs allocates the buffers of n receives.
func (c *Conn) makeRecvs(n int) error {
	c.recvs = make([]recvSlot, n)
	for i := range c.recvs {
		s := &c.recvs[i]
		buf, err := c.rt.mem.allocNear(c.sh.node, frameSize+c.opts.MessageSize)
		if err != nil {
			c.recvs = c.recvs[:i]
			return err
		}
		s.c, s.i, s.buf = c, i, buf
		s.sge[0] = buf.Slice().SGE()
	}
	return nil
}

// Message is a received message. Its data lies in a receive buffer of the
// connection, which is the caller's until Release; the peer can have only so
// many messages unreleased as the connection has credits.
type Message struct {
	Data []byte // nil for a WRITE with immediate data
	// Imm is the immediate data, in host order, if HasImm; Written is how many bytes a WRITE
	// with immediate data wrote.
	Imm     uint32
	HasImm  bool
	Written int
	// Invalidated is the window that the peer has shut with this message; nil
	// when it has shut none.
	Invalidated *Window

	slot   *recvSlot
	number uint64
}

// Release gives the buffer back: it is posted again when the peer gets its
// credit. Data must not be used after it. ErrMessage when it was released
// already. It does not block, but as Buffer.Release says when the connection is
// gone and its messages are large.
func (m Message) Release() error {
	s := m.slot
	if s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return ErrMessage
	}
	c := s.c
	if err := s.postLater(); err != nil { // the connection is going or gone
		return s.buf.Release()
	}
	c.returnCredits(1)
	return nil
}

// MessageSink receives a message instead of a future. Received is called once,
// holding the turn of the connection's reactor: it must not block. With err the
// message is empty, and no other will come.
type MessageSink interface {
	Received(m Message, err error)
}

// recvWaiter is somebody who waits for a message.
type recvWaiter struct {
	hook    ring.Hook[recvWaiter]
	promise futures.Promise[Message]
	sink    MessageSink // gets the message in the promise's place
	// m and err are what sink is to get. The holder's.
	m   Message
	err error
}

// wanted implements waiter.
func (w *recvWaiter) wanted() bool { return w.sink != nil || w.promise.Wanted() }

// giveUp implements waiter.
func (w *recvWaiter) giveUp() { w.end(Message{}, futures.ErrDiscarded) }

// InboxHook links the want.
func (w *recvWaiter) InboxHook() *ring.Hook[recvWaiter] { return &w.hook }

var recvWaiterPool = sync.Pool{New: func() any { return new(recvWaiter) }}

// Recv returns the future of the next message; messages go to those who asked
// in the order of asking. A discarded future's message is given to the next who
// asks. The error is why no message will come any more: ErrPeerClosed, or the
// failure. It does not block; in steady state it allocates nothing.
func (c *Conn) Recv() futures.Future[Message] { return c.recv(false) }

// RecvWait waits for the next message. When ctx ends first no message is lost.
func (c *Conn) RecvWait(ctx context.Context) (Message, error) {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return Message{}, err
	}
	return reactor.Await(ctx, asked, c.recv(c.sh.r.Driver() != nil))
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

// addRecvWaiter queues one who waits for a message.
func (c *Conn) addRecvWaiter(p futures.Promise[Message], sink MessageSink, quiet bool) {
	w := recvWaiterPool.Get().(*recvWaiter)
	w.promise, w.sink = p, sink
	c.wantIn.Push(w)
	c.sh.r.Schedule(&c.matchTask, quiet)
}

// match gives arrived messages to those who wait. Holder only.
func (c *Conn) match() {
	for w := c.wantIn.TakeAll(); w != nil; {
		next := w.hook.Unlink()
		c.recvWaiters = append(c.recvWaiters, w)
		w = next
	}
	done := 0
	for ; done < len(c.recvWaiters); done++ {
		// After the wants, and after every Settle: a message that came back goes
		// before later ones to whoever asked after it was given up.
		c.takeBack()
		w := c.recvWaiters[done]
		var m Message
		var err error
		switch {
		case !w.wanted():
			err = futures.ErrDiscarded // nobody sees it; the memory goes back
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

// answer ends the wait; the want is not the caller's any more. A sink is told by the
// reactor: it is user code, and the caller is in the midst of the wants.
func (c *Conn) answer(w *recvWaiter, m Message, err error) {
	if w.sink != nil {
		w.m, w.err = m, err
		c.q.Notify(w)
		return
	}
	w.end(m, err)
}

// end is answer for a want without a sink.
func (w *recvWaiter) end(m Message, err error) {
	p := w.promise
	w.give()
	p.Settle(m, err)
}

// Complete implements reactor.Sink, for the sink's turn to be told.
func (w *recvWaiter) Complete(SinkContext, Result, error) {
	sink, m, err := w.sink, w.m, w.err
	w.give()
	sink.Received(m, err)
}

// give is the want's end.
func (w *recvWaiter) give() {
	w.promise, w.sink, w.m, w.err = futures.Promise[Message]{}, nil, Message{}, nil
	recvWaiterPool.Put(w)
}

func (c *Conn) handOut(i int) Message {
	s := &c.recvs[i]
	number := s.state.Add(1) // odd: held
	m := Message{slot: s, number: number, Imm: s.imm, HasImm: s.with, Invalidated: s.shut}
	if s.data {
		m.Data = s.buf.Bytes()[frameSize : frameSize+s.n]
	} else {
		m.Written = s.n
	}
	return m
}

// disposeMessage takes back a message whose future was discarded: it is the
// next to be received.
func disposeMessage(m Message, err error) {
	s := m.slot
	if err != nil || s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return
	}
	c := s.c
	c.backIn.Push(s)
	c.sh.r.Schedule(&c.matchTask, false)
	// The connection may have ended before the push, and its reactor too. If
	// not, whoever takes the slot back moves its number on, or frees it as well.
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

// takeBack puts messages whose futures were discarded where they were among
// those that have arrived. Holder only.
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

// freeArrived frees messages that nobody received.
func (c *Conn) freeArrived() {
	for _, i := range c.arrived {
		c.recvs[i].free()
	}
	c.arrived = nil
}

// connSink is a connection as the sink of its own receives and credit updates.
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
		// A flush is a consequence, and the failure itself came through OnFail.
		// What the device refused nobody else tells.
		if _, completed := errors.AsType[*verbs.WCError](err); !completed && c.state <= connOpen {
			c.sh.r.Defer(func() { c.fail(err) })
		}
		return
	}
	if err := c.take(s, r); err != nil {
		s.free()
		if c.state == connConnecting { // setup may be in the midst of it
			c.sh.r.Defer(func() { c.fail(err) })
			return
		}
		c.fail(err)
	}
}

// take looks at what has arrived.
func (c *Conn) take(s *recvSlot, r Result) error {
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	if s.data = r.Opcode != verbs.WCRecvRDMAWithImm; !s.data {
		s.n = int(r.Bytes)
	} else {
		f, bad := proto.ParseFrame(s.buf.Bytes(), int(r.Bytes))
		if bad != nil {
			return (*ProtocolError)(bad)
		}
		// No credits yet on the dialing side before ESTABLISHED: nothing was
		// sent, so nothing can come back.
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
	c.arrivals++ // data and immediates: each has used up a credit
	s.nth = c.arrivals
	c.arrived = append(c.arrived, s.i)
	if len(c.recvWaiters) > 0 {
		c.match()
	}
	return nil
}
