package runtime

import (
	"context"
	"sync/atomic"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// fragments is an operation that is split into several requests, which are called fragments. The
// operation ends when all fragments have completed. Its result is the first error, or that of one
// request of all bytes. (Result.Bytes has 32 bits; it is 2^32-1 for a larger number.)
type fragments struct {
	promise futures.Promise[Result]
	sink    reactor.Sink // if not nil, gets the result in place of the promise
	tag     uint64       // Result.Tag of the result
	// The poster is the goroutine that posts the fragments. The counter left has one for each
	// fragment that has not completed, and one more until the poster has finished. The poster
	// increases the counter; the poster and the holder of the reactor's turn decrease it. The
	// goroutine that decreases the counter to zero delivers the result. Each change of the counter
	// publishes the fields below, so this goroutine sees all writes to these fields.
	left atomic.Int64
	// The holder writes these fields. If the poster cannot post a fragment, it writes failed, too.
	bytes  uint64
	kind   reactor.Kind   // of each fragment
	opcode verbs.WCOpcode // of each fragment
	failed uatomic.Error
}

// Complete implements reactor.Sink.
func (m *fragments) Complete(t SinkContext, r Result, err error) {
	if err != nil {
		m.failed.CompareAndSwap(nil, err)
	} else {
		m.bytes += uint64(r.Bytes)
		m.kind, m.opcode = r.Kind, r.Opcode
	}
	m.done(t)
}

// fragments.posted is called when the poster has finished. If all fragments have completed by then,
// this method delivers the result: it settles the promise, or makes Queue.Notify call the sink.
// Notify calls the sink while the turn is held, so a panic of the sink does not reach the poster.
func (m *fragments) posted(c *Conn) {
	if m.sink == nil {
		m.done(SinkContext{})
		return
	}
	if m.left.Add(-1) == 0 {
		m.left.Store(1) // Notify calls Complete, which subtracts 1
		c.sh.r.Defer(func() { c.q.Notify(m) })
	}
}

func (m *fragments) done(t SinkContext) {
	if m.left.Add(-1) > 0 {
		return
	}
	r, err := Result{Tag: m.tag}, m.failed.Load()
	if err == nil {
		r.Bytes, r.Kind, r.Opcode = uint32(min(m.bytes, 1<<32-1)), m.kind, m.opcode
	}
	if m.sink != nil {
		m.sink.Complete(t, r, err)
		return
	}
	m.promise.Settle(r, err)
}

// Conn.split posts a transfer that is larger than the port's largest message, in fragments that share
// one future or sink. Only the first fragment has the fence flag, because the later fragments do not
// begin before the first fragment. The last fragment, which arrives last, carries the immediate data
// and the solicited and the signaled flag.
//
// If the first fragment cannot be posted, split returns the error. If a later fragment cannot be
// posted, the operation ends with this error when the posted fragments have completed. In mode
// NonBlock, split posts nothing and returns ErrPieces.
func (c *Conn) split(ctx context.Context, t *reactor.Transfer, locals []Slice, remote Remote, how reactor.SubmitMode) (Future, error) {
	if how&reactor.NonBlock != 0 {
		return Future{}, ErrPieces
	}
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return Future{}, err
	}
	m := &fragments{sink: t.Sink, tag: t.Tag}
	var f Future
	if t.Sink == nil {
		m.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	}
	m.left.Store(1)
	posted, err := c.postFragments(asked, m, t, locals, remote)
	if err != nil && posted == 0 {
		m.promise.Settle(Result{}, err)
		f.Discard()
		return Future{}, asked.Cause(ctx, err)
	}
	defer m.posted(c) // deferred, because asked.Cause calls a method of ctx, which may panic
	if err != nil {
		m.failed.CompareAndSwap(nil, asked.Cause(ctx, err))
	}
	return f, nil
}

// postFragments posts the fragments of locals, and returns how many fragments it has posted.
func (c *Conn) postFragments(asked reactor.DoneContext, m *fragments, t *reactor.Transfer, locals []Slice, remote Remote) (posted int, err error) {
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
			if left == 0 { // the last fragment
				s.Imm, s.Flags = t.Imm, s.Flags|t.Flags&(verbs.SendSolicited|verbs.SendSignaled)
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

func (c *Conn) fragment(asked reactor.DoneContext, m *fragments, s *reactor.Send, part Slice) error {
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
