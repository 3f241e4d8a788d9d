package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// StartAll starts ops in order, each as Start does, and stores their futures in fs, which must be
// at least as long as ops. StartAll waits for room in the send queue as Start does.
//
// StartAll submits consecutive simple operations in batches of up to 32. (A simple operation is a
// READ, or a WRITE without immediate data, of one piece of memory and one work request, or a
// SendBytesOp of at most Options.Inline bytes, message header included.) A batch costs less than separate submissions. No operation of another goroutine comes between the
// operations of a batch.
//
// StartAll returns the number n of operations that were started. If n is less than len(ops), then
// ops[n] was not started, err is the reason, and the futures of the operations before ops[n] are in
// fs.
func (c *Conn) StartAll(ctx context.Context, ops []Op, fs []Future) (n int, err error) {
	if n, err = c.Batch().StartAll(ctx, ops, fs); n > 0 {
		c.sh.r.Wake()
	}
	return n, err
}

// StartAll is [Conn.StartAll] without the wake-up of the reactor's goroutine.
func (b Batch) StartAll(ctx context.Context, ops []Op, fs []Future) (n int, err error) {
	if len(fs) < len(ops) {
		return 0, fmt.Errorf("%w: room for %d futures of %d operations", ErrInvalid, len(fs), len(ops))
	}
	return b.c.startAll(ctx, ops, fs, nil)
}

// startAll starts ops in order, without waking the loop (the reactor's goroutine). If sink is nil,
// startAll stores the futures of the operations in fs. Otherwise sink receives each result, with the
// index of the operation as tag. startAll returns the number n of operations that were started. If
// ops[n] could not be started, startAll also returns the error of ops[n].
func (c *Conn) startAll(ctx context.Context, ops []Op, fs []Future, sink Sink) (n int, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return 0, err
	}
	s := opBatch{c: c, sink: sink}
	s.Reset(c.q)
	defer s.end()
	for n = range ops {
		var f Future
		tag := uint64(0)
		if sink != nil {
			tag = uint64(n)
		}
		switch {
		case s.leased > 0 || ops[n].isSimple(c):
			f, err = s.transfer(asked, ops[n:], tag)
		case ops[n].isSmallSend(c):
			f, err = s.sendBytes(asked, ops[n:], tag)
		default:
			// Submit the batch first, to keep the order. Submit also frees the slots that the batch has
			// acquired and not used; otherwise c.start could wait forever for these slots. c.start
			// gets ctx and not the DoneContext, because the future of a large transfer may report the
			// context's error.
			s.Submit(reactor.NoWakeup)
			f, err = c.start(ctx, &ops[n], submitOpts{mode: reactor.NoWakeup, sink: sink, tag: tag})
		}
		if err != nil {
			return n, asked.Cause(ctx, err)
		}
		if sink == nil {
			fs[n] = f
		}
	}
	return len(ops), nil
}

// opBatch is a reactor.BatchSubmitter that also leases the memory of the operations. A lease
// counts its operations in flight in one atomic word. All goroutines that use a region change the
// same word, so each change is expensive. For consecutive operations on one lease, opBatch
// changes the word only one time. It also takes the credits of consecutive messages together.
type opBatch struct {
	reactor.BatchSubmitter
	c      *Conn
	sink   Sink
	batch  *lease // the lease that opBatch.lease has changed last
	leased int    // how many operations have a lease on batch and are not started yet
	// credits is how many credits were taken for messages that are not started yet.
	credits int
}

// opBatch.transfer starts ops[0], for which isSimple must be true. The other elements of ops
// are the operations that the caller will start next.
func (s *opBatch) transfer(asked reactor.DoneContext, ops []Op, tag uint64) (f Future, err error) {
	op, c := &ops[0], s.c
	local := &op.one[0]
	if err := c.checkTransfer(op.opcode, local, &op.remote); err != nil {
		return f, err
	}
	if local.lease != nil && s.leased == 0 {
		if err := s.lease(ops); err != nil {
			return f, err
		}
	}
	var t reactor.Transfer
	t.Opcode, t.Flags, t.Sink, t.Tag = op.opcode, op.flags, s.sink, tag
	c.fill(&t, local, &op.remote)
	if l := local.lease; l != nil {
		t.Lease = l
	}
	if f, err = s.Transfer(asked, &t, len(ops)-1, reactor.NoWakeup); err == nil && local.lease != nil {
		s.leased--
	}
	return f, err
}

// opBatch.lease takes a lease on the memory of ops[0] for this operation. The same change of the
// lease's word serves the operations that directly follow ops[0], as long as they are simple and use
// the same lease. It serves at most reactor.MaxSubmitBatch operations in all.
func (s *opBatch) lease(ops []Op) error {
	local, n := &ops[0].one[0], 1
	if local.lease.memory != s.c.rt.mem {
		return local.of(s.c.rt.mem)
	}
	for ; n < min(len(ops), reactor.MaxSubmitBatch) && ops[n].isSimple(s.c); n++ {
		if l := &ops[n].one[0]; l.lease != local.lease || l.gen != local.gen {
			break
		}
	}
	if !local.lease.beginN(local.gen, n) {
		return ErrReleased
	}
	s.batch, s.leased = local.lease, n
	return nil
}

// isSmallSend reports whether op is a SendBytesOp whose message, with its header, is inline.
func (op *Op) isSmallSend(c *Conn) bool {
	return op.kind == startSendBytes && c.headerSize()+len(op.bytes) <= c.inline && len(op.bytes) <= c.eager
}

// opBatch.sendBytes starts ops[0], for which isSmallSend must be true. The other elements of ops are the
// operations that the caller will start next.
func (s *opBatch) sendBytes(asked reactor.DoneContext, ops []Op, tag uint64) (f Future, err error) {
	op, c := &ops[0], s.c
	if err := c.mayCarry(uint64(len(op.bytes))); err != nil {
		return f, err
	}
	var r reactor.Send
	var p reactor.Payload
	op.fillSend(&r)
	p.Inline = op.bytes
	if r.Sink, r.Tag = s.sink, tag; op.bytes == nil {
		p.Inline = empty[:]
	}
	if c.opts.Raw {
		return s.Send(asked, &r, &p, len(ops)-1, reactor.NoWakeup)
	}
	if s.credits == 0 {
		if err := s.takeCredits(asked, ops); err != nil {
			return f, err
		}
	}
	var head [frameSize]byte
	frame := c.frame(proto.Data, len(op.bytes))
	frame.Encode(&head)
	p.Header = head[:]
	if f, err = s.Send(asked, &r, &p, len(ops)-1, reactor.NoWakeup); err != nil {
		c.unframe(frame)
		return f, err
	}
	s.credits--
	return f, nil
}

// opBatch.takeCredits takes credits for ops[0] and the small messages that directly follow it, as many as
// are free, and waits for one if none is.
func (s *opBatch) takeCredits(asked reactor.DoneContext, ops []Op) error {
	c, n := s.c, 1
	for n < min(len(ops), reactor.MaxSubmitBatch) && ops[n].isSmallSend(c) {
		n++
	}
	if s.credits = c.takeCredits(n); s.credits > 0 {
		return nil
	}
	s.Submit(reactor.NoWakeup) // before the wait: the peer returns credits only for messages that it gets
	if err := c.creditFor(asked, verbs.WRSend, reactor.Block); err != nil {
		return err
	}
	s.credits = 1
	return nil
}

// opBatch.end submits the started operations. It also ends the lease of the operations that
// were leased and not started, and gives back the credits of messages that were not started.
func (s *opBatch) end() {
	s.Submit(reactor.NoWakeup)
	if s.leased > 0 {
		s.batch.EndN(s.leased)
	}
	for ; s.credits > 0; s.credits-- {
		s.c.creditBack(verbs.WRSend)
	}
}
