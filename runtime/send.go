package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Send sends local as one message, at most MaxMessage bytes. On a managed
// connection it waits on ctx for one of the peer's receives, on any for room in
// the send queue; not for the message. The local memory is the device's until
// the future is settled.
//
// Errors: ErrTooLarge; otherwise as the one-sided operations.
//
// Implements: ibv_post_send, SEND.
func (c *Conn) Send(ctx context.Context, local Slice) (Future, error) {
	return c.SendV(ctx, []Slice{local})
}

// SendV is Send that gathers locals, in order, into one message; at most
// Options.MaxSGE of them.
func (c *Conn) SendV(ctx context.Context, locals []Slice) (f Future, err error) {
	return c.send(ctx, locals, reactor.Send{Opcode: verbs.WRSend}, way{})
}

// send sends what s asks for: a SEND, or one that invalidates.
func (c *Conn) send(ctx context.Context, locals []Slice, s reactor.Send, w way) (f Future, err error) {
	total := 0
	for _, l := range locals {
		total += l.Len()
	}
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return f, err
	}
	if err := c.mayCarry(total); err != nil {
		return f, err
	}
	if err := c.creditFor(asked, verbs.WRSend, w); err != nil {
		return f, asked.Why(ctx, err)
	}
	var space [stackSGEs]verbs.SGE
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(c.rt.mem, space[:0], locals); err == nil {
		if c.headerSize()+total <= c.inline && near(locals) {
			s.Flags |= verbs.SendInline // as Conn.carries says
		}
		if f, err = c.post(asked, &s, p, total, w); err == nil {
			return f, nil
		}
		if s.Lease != nil {
			s.Lease.End()
		}
	}
	c.creditBack(verbs.WRSend)
	return f, asked.Why(ctx, err)
}

// near tells whether there is something in locals, all of it in memory that the processor
// may read for the device.
func near(locals []Slice) bool {
	n := 0
	for i := range locals {
		if n += len(locals[i].b); locals[i].far > 0 || locals[i].access&fetched != 0 {
			return false
		}
	}
	return n > 0
}

// SendBytes sends a copy of p as one message: p may lie anywhere, and is the
// caller's when SendBytes returns. Otherwise as Send.
func (c *Conn) SendBytes(ctx context.Context, p []byte) (Future, error) {
	return c.sendBytes(ctx, p, way{})
}

func (c *Conn) sendBytes(ctx context.Context, p []byte, w way) (f Future, err error) {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return f, err
	}
	if err := c.mayCarry(len(p)); err != nil {
		return f, err
	}
	if c.headerSize()+len(p) > c.inline {
		buf, err := c.rt.mem.Alloc(len(p))
		if err != nil {
			return f, err
		}
		copy(buf.Bytes(), p)
		f, err = c.send(asked, []Slice{buf.Slice()}, reactor.Send{Opcode: verbs.WRSend}, w)
		if rerr := buf.Release(); err == nil { // given back when the message has gone
			err = rerr
		}
		return f, asked.Why(ctx, err)
	}
	if err := c.creditFor(asked, verbs.WRSend, w); err != nil {
		return f, asked.Why(ctx, err)
	}
	if p == nil {
		p = empty[:] // an empty message is inline data, too
	}
	if f, err = c.post(asked, &reactor.Send{Opcode: verbs.WRSend}, reactor.Payload{Inline: p}, len(p), w); err != nil {
		c.creditBack(verbs.WRSend)
		err = asked.Why(ctx, err)
	}
	return f, err
}

// empty is inline data of no bytes.
var empty [0]byte

func (c *Conn) mayCarry(n int) error {
	if err := c.Err(); err != nil {
		return err
	}
	if n > c.MaxMessage() {
		return fmt.Errorf("%w: %d bytes, one message carries %d to this peer", ErrTooLarge, n, c.MaxMessage())
	}
	return nil
}

func (c *Conn) headerSize() int {
	if c.opts.Raw {
		return 0
	}
	return frameSize
}

// post puts the frame header, with the credits to give back, in front of a
// managed message of n bytes.
func (c *Conn) post(ctx context.Context, s *reactor.Send, p reactor.Payload, n int, w way) (Future, error) {
	if c.opts.Raw {
		return c.submit(ctx, s, p, w)
	}
	var head [frameSize]byte
	back := c.grant()
	frame{kind: frameData, credits: back, length: uint32(n)}.encode(&head)
	p.Header = head[:]
	f, err := c.submit(ctx, s, p, w)
	if err != nil {
		c.ungrant(back)
	}
	return f, err
}

// PostRecv posts a receive of a raw connection. The future gives the bytes
// received and the immediate data. It does not wait: reactor.ErrRecvFull when
// Options.RecvCredits are posted. The memory is the device's until the
// future is settled; receives complete in the order they were posted.
//
// Implements: ibv_post_recv.
func (c *Conn) PostRecv(locals ...Slice) (Future, error) { return c.postRecvFuture(locals, way{}) }

func (c *Conn) postRecvFuture(locals []Slice, w way) (Future, error) {
	s := newRawRecv(c, nil)
	promise, f := c.sh.r.Futures().New(c.sh.r.Driver())
	s.promise = promise
	if err := c.postRecv(locals, s, w); err != nil {
		promise.Settle(Result{}, err)
		f.Discard()
		return Future{}, err
	}
	return f, nil
}

// postRecv posts a receive for s, which ends with an error.
func (c *Conn) postRecv(locals []Slice, s *rawRecv, w way) (err error) {
	defer func() {
		if err != nil {
			s.give()
		}
	}()
	if !c.opts.Raw {
		return fmt.Errorf("%w: receives of a managed connection are its own", ErrMode)
	}
	if c.opts.Shared != nil {
		return fmt.Errorf("%w: the connection receives through Options.Shared", ErrMode)
	}
	if err := c.Err(); err != nil {
		return err
	}
	total := 0
	for _, l := range locals {
		if !l.writable() {
			return fmt.Errorf("%w: the memory of a receive is not registered for LOCAL_WRITE", ErrPermission)
		}
		total += l.Len()
	}
	if total > c.MaxMessage() { // which fits the 32 bits of an element, too
		return fmt.Errorf("%w: a receive of %d bytes, one message carries %d", ErrTooLarge, total, c.MaxMessage())
	}
	var space [stackSGEs]verbs.SGE
	r := reactor.Recv{Sink: s, Tag: w.tag}
	var sges []verbs.SGE
	if sges, r.Lease, err = leaseAll(c.rt.mem, space[:0], locals); err != nil {
		return err
	}
	if err = c.q.SubmitRecv(&r, sges, w.manner); err != nil && r.Lease != nil {
		r.Lease.End()
	}
	return err
}
