package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Send starts a [SendOp]: it sends local as one message. If local is longer than MaxMessage bytes,
// Send returns ErrTooLarge. On a managed connection Send also waits for a credit, until ctx ends.
// In all other respects Send is like [Conn.Start].
//
// The peer reads a message that does not fit into its receives (Options.MessageSize there) from local, when
// its program receives. Then the future is settled only when the peer has read the message, and until
// then the memory belongs to the device. If the connection ends before that, the future fails, and the peer's
// program may have got the message or not. A message that it does not get is the last: it gets none that was sent
// later. Up to four such messages may be unread; Send waits to start the next. Several pieces of memory are copied
// first, as are on-demand and zero-based memory; with Op.Fence such a message is refused (ErrInvalid).
func (c *Conn) Send(ctx context.Context, local Slice) (Future, error) {
	return c.send(ctx, []Slice{local}, &reactor.Send{Opcode: verbs.WRSend}, submitOpts{})
}

// fillSend fills *s with the request for op, without the data. *s must be zero, and op must be a SEND. (A function that
// returned the request would copy it with wide loads right after narrow stores, which stalls.)
func (op *Op) fillSend(s *reactor.Send) {
	s.Opcode, s.Flags, s.Imm, s.Invalidate = op.opcode, op.flags, op.imm, op.remote.RKey
}

// Conn.send sends locals as one message. The argument s is a SEND of any kind, without data, which send fills.
func (c *Conn) send(ctx context.Context, locals []Slice, s *reactor.Send, w submitOpts) (f Future, err error) {
	var sum uint64 // uint64: one slice may be listed many times, so the sum may overflow an int
	for _, l := range locals {
		sum += uint64(l.Len())
	}
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if err := c.mayCarry(sum); err != nil {
		return f, err
	}
	total := int(sum)
	if total > c.eager {
		f, err = c.sendLarge(asked, locals, total, *s, w)
		return f, asked.Cause(ctx, err)
	}
	if err := c.creditFor(asked, verbs.WRSend, w.mode); err != nil {
		return f, asked.Cause(ctx, err)
	}
	var space [stackSGEs]verbs.SGE
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(c.rt.mem, space[:0], locals); err == nil {
		if c.headerSize()+total <= c.inline && cpuReadable(locals) {
			s.Flags |= verbs.SendInline // the reason is in the comment of Conn.inlineFlag
		}
		if f, err = c.post(asked, s, p, total, w); err == nil {
			return f, nil
		}
		if s.Lease != nil {
			s.Lease.End()
		}
	}
	c.creditBack(verbs.WRSend)
	return f, asked.Cause(ctx, err)
}

// cpuReadable reports whether locals may be sent inline: they have at least one byte, and only
// bytes that the processor may read. The processor must not read memory of another device
// (deviceLen > 0), nor memory that has one of the access flags in the constant fetched
// (op_transfer.go).
func cpuReadable(locals []Slice) bool {
	n := 0
	for i := range locals {
		if n += len(locals[i].b); locals[i].deviceLen > 0 || locals[i].access&fetched != 0 {
			return false
		}
	}
	return n > 0
}

// SendBytes starts a [SendBytesOp]: it sends a copy of p as one message. The bytes of p may be in any
// memory, and the caller may change them when SendBytes has returned. In all other respects
// SendBytes is like Send.
func (c *Conn) SendBytes(ctx context.Context, p []byte) (Future, error) {
	return c.sendBytes(ctx, p, &reactor.Send{Opcode: verbs.WRSend}, submitOpts{})
}

// sendBytes sends a copy of p as one message. The argument s is a SEND of any kind, without data.
func (c *Conn) sendBytes(ctx context.Context, p []byte, s *reactor.Send, w submitOpts) (f Future, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if err := c.mayCarry(uint64(len(p))); err != nil {
		return f, err
	}
	if w.mode&reactor.NonBlock != 0 && len(p) > c.eager {
		return f, ErrPieces
	}
	if c.headerSize()+len(p) > c.inline || len(p) > c.eager {
		buf, err := c.rt.allocFor(asked, len(p), w.mode)
		if err != nil {
			return f, asked.Cause(ctx, err)
		}
		copy(buf.Bytes(), p)
		f, err = c.send(asked, []Slice{buf.Slice()}, s, w)
		buf.drop() // the send's lease keeps the buffer until the send completes
		return f, asked.Cause(ctx, err)
	}
	if err := c.creditFor(asked, verbs.WRSend, w.mode); err != nil {
		return f, asked.Cause(ctx, err)
	}
	if p == nil {
		p = empty[:] // Payload.Inline must not be nil, because nil means that the data is not inline
	}
	if f, err = c.post(asked, s, reactor.Payload{Inline: p}, len(p), w); err != nil {
		c.creditBack(verbs.WRSend)
		err = asked.Cause(ctx, err)
	}
	return f, err
}

// empty is the inline data of an empty message.
var empty [0]byte

func (c *Conn) mayCarry(n uint64) error {
	if err := c.Err(); err != nil {
		return err
	}
	if n > uint64(c.MaxMessage()) {
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

// Conn.post submits s with the payload p, which has n bytes. On a managed connection it adds the
// frame header, which also returns credits to the peer.
func (c *Conn) post(ctx context.Context, s *reactor.Send, p reactor.Payload, n int, w submitOpts) (Future, error) {
	if c.opts.Raw {
		return c.submit(ctx, s, p, w)
	}
	var head [frameSize]byte
	frame := c.frameOf(proto.Data, n, &w)
	frame.Encode(&head)
	p.Header = head[:]
	f, err := c.submit(ctx, s, p, w)
	if err != nil {
		c.unframe(frame)
	}
	return f, err
}
