package runtime

import (
	"context"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// rawRecv settles the future of a raw connection's receive.
type rawRecv struct {
	c       *Conn
	promise futures.Promise[Result]
}

// Complete implements reactor.Sink.
func (s *rawRecv) Complete(r Result, err error) {
	if r.Flags&verbs.WCWithInv != 0 {
		s.c.invalidated(r.Imm)
	}
	s.promise.Settle(r, err)
}

// multi is an operation made of several: it is settled when the last of them
// is, with the first error, or all bytes.
type multi struct {
	promise futures.Promise[Result]
	// left counts the parts not completed, plus one while parts are being
	// posted. Added to by the poster, taken from by the holder and the poster;
	// who brings it to zero settles, and sees what all have written.
	left atomic.Int64
	// bytes and failed are written by the holder, but for the poster's error;
	// published by left.
	bytes  uint64
	failed atomic.Pointer[error]
}

// Complete implements reactor.Sink.
func (m *multi) Complete(r Result, err error) {
	if err != nil {
		m.failed.CompareAndSwap(nil, &err)
	} else {
		m.bytes += uint64(r.Bytes)
	}
	m.done()
}

func (m *multi) done() {
	if m.left.Add(-1) > 0 {
		return
	}
	if e := m.failed.Load(); e != nil {
		m.promise.Settle(Result{}, *e)
		return
	}
	m.promise.Settle(Result{Bytes: uint32(min(m.bytes, 1<<32-1))}, nil)
}

// split posts a transfer larger than the port's largest message in pieces, with
// one future for all. An immediate goes with the last piece, which arrives last.
// When posting stops half-way the future tells, after the posted pieces.
func (c *Conn) split(ctx context.Context, op verbs.WROpcode, locals []Slice, remote Remote, imm uint32) (Future, error) {
	m := &multi{}
	var f Future
	m.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	m.left.Store(1)
	posted, err := c.pieces(ctx, m, op, locals, remote, imm)
	if err != nil && posted == 0 {
		m.promise.Settle(Result{}, err)
		f.Discard()
		return Future{}, err
	}
	if err != nil {
		m.failed.CompareAndSwap(nil, &err)
	}
	m.done()
	return f, nil
}

func (c *Conn) pieces(ctx context.Context, m *multi, op verbs.WROpcode, locals []Slice, remote Remote, imm uint32) (posted int, err error) {
	largest := int(c.sh.r.MaxMessage())
	left := 0
	for _, l := range locals {
		left += l.Len()
	}
	for _, l := range locals {
		for off := 0; off < l.Len(); {
			n := min(largest, l.Len()-off)
			part, err := l.Sub(off, n)
			if err != nil {
				return posted, err
			}
			off += n
			left -= n
			last := left == 0 // empty slices may follow
			kind := op
			if op == verbs.WRRDMAWriteWithImm && !last {
				kind = verbs.WRRDMAWrite
			}
			s := reactor.Send{Opcode: kind, Remote: remote.Addr, RKey: remote.RKey, Sink: m}
			if last {
				s.Imm = imm
			}
			if err := c.piece(ctx, m, &s, part); err != nil {
				return posted, err
			}
			remote.Addr += uint64(n)
			posted++
		}
	}
	return posted, nil
}

func (c *Conn) piece(ctx context.Context, m *multi, s *reactor.Send, part Slice) error {
	if err := c.creditFor(ctx, s.Opcode); err != nil {
		return err
	}
	var space [1]verbs.SGE
	var err error
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(space[:0], []Slice{part}); err == nil {
		m.left.Add(1)
		if _, err = c.q.Post(ctx, s, p); err == nil {
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
