package runtime

import (
	"context"
	"sync/atomic"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// fragments is an operation made of several: it is settled when the last of them
// is, with the first error, or all bytes.
type fragments struct {
	promise futures.Promise[Result]
	sink    reactor.Sink // gets the result, with tag, in the promise's place
	tag     uint64
	// left counts the parts not completed, plus one while parts are being
	// posted. Added to by the poster, taken from by the holder and the poster;
	// who brings it to zero settles, and sees what all have written.
	left atomic.Int64
	// bytes and failed are written by the holder, but for the poster's error;
	// published by left.
	bytes  uint64
	failed uatomic.Error
}

// Complete implements reactor.Sink.
func (m *fragments) Complete(t SinkContext, r Result, err error) {
	if err != nil {
		m.failed.CompareAndSwap(nil, err)
	} else {
		m.bytes += uint64(r.Bytes)
	}
	m.done(t)
}

// posted says that no more parts come. If all have completed, a sink is called in a turn,
// as after the last part: not on the goroutine of the poster, who would have its panics.
func (m *fragments) posted(c *Conn) {
	if m.sink == nil {
		m.done(SinkContext{})
		return
	}
	if m.left.Add(-1) == 0 {
		m.left.Store(1) // the turn's
		c.sh.r.Defer(func() { c.q.Notify(m) })
	}
}

func (m *fragments) done(t SinkContext) {
	if m.left.Add(-1) > 0 {
		return
	}
	r, err := Result{Tag: m.tag}, m.failed.Load()
	if err == nil {
		r.Bytes = uint32(min(m.bytes, 1<<32-1))
	}
	if m.sink != nil {
		m.sink.Complete(t, r, err)
		return
	}
	m.promise.Settle(r, err)
}

// split posts a transfer larger than the port's largest message in pieces, with
// one future for all. A fence holds up the first piece, and so all; an immediate goes with
// the last, which arrives last. When posting stops half-way the future tells, after the
// posted pieces.
func (c *Conn) split(ctx context.Context, t *reactor.Transfer, locals []Slice, remote Remote, how reactor.SubmitMode) (Future, error) {
	if how == reactor.NonBlock {
		return Future{}, ErrPieces
	}
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return Future{}, err
	}
	m := &fragments{sink: t.Sink, tag: t.Tag}
	var f Future
	if t.Sink == nil {
		m.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	}
	m.left.Store(1)
	posted, err := c.fragmentCount(asked, m, t, locals, remote)
	if err != nil && posted == 0 {
		m.promise.Settle(Result{}, err)
		f.Discard()
		return Future{}, asked.Why(ctx, err)
	}
	defer m.posted(c) // whatever the context does
	if err != nil {
		m.failed.CompareAndSwap(nil, asked.Why(ctx, err))
	}
	return f, nil
}

func (c *Conn) fragmentCount(asked reactor.Asked, m *fragments, t *reactor.Transfer, locals []Slice, remote Remote) (posted int, err error) {
	largest := c.oneWR
	var left uint64
	for _, l := range locals {
		left += uint64(l.Len())
	}
	for _, l := range locals {
		for off := 0; off < l.Len(); {
			n := min(largest, l.Len()-off)
			part, err := l.Sub(off, n)
			if err != nil {
				return posted, err
			}
			off += n
			left -= uint64(n)
			s := reactor.Send{Opcode: t.Opcode, Remote: remote.Addr, RKey: remote.RKey, Sink: m}
			if posted == 0 {
				s.Flags = t.Flags & verbs.SendFence
			}
			if left == 0 { // the last; empty slices may follow
				s.Imm, s.Flags = t.Imm, s.Flags|t.Flags&verbs.SendSolicited
			} else if t.Opcode == verbs.WRRDMAWriteWithImm {
				s.Opcode = verbs.WRRDMAWrite
			}
			if err := c.fragment(asked, m, &s, part); err != nil {
				return posted, err
			}
			remote.Addr += uint64(n)
			posted++
		}
	}
	return posted, nil
}

func (c *Conn) fragment(asked reactor.Asked, m *fragments, s *reactor.Send, part Slice) error {
	if err := c.creditFor(asked, s.Opcode, reactor.Block); err != nil {
		return err
	}
	var space [1]verbs.SGE
	var err error
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(c.rt.mem, space[:0], []Slice{part}); err == nil {
		m.left.Add(1)
		if _, err = c.q.Submit(asked, s, &p, reactor.Block); err == nil {
			return nil
		}
		m.left.Add(-1)
		if s.Lease != nil {
			s.Lease.End()
		}
	}
	c.creditBack(s.Opcode)
	return err
}
