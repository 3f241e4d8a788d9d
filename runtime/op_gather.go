package runtime

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// stackSGEs is the capacity of the list of scatter-gather elements on the stack of the call that
// starts an operation. A longer list is allocated on the heap.
const stackSGEs = 8

// transferV starts a WRITE or READ with several pieces of local memory.
func (c *Conn) transferV(ctx context.Context, op *Op, w submitOpts) (f Future, err error) {
	if err := c.Err(); err != nil {
		return f, err
	}
	var total uint64
	for _, l := range op.several {
		total += uint64(l.Len())
		if op.opcode == verbs.WRRDMARead && !l.writable() {
			return f, errUnwritable
		}
	}
	need := verbs.AccessRemoteWrite
	if op.opcode == verbs.WRRDMARead {
		need = verbs.AccessRemoteRead
	}
	if err := op.remote.check(total, need); err != nil {
		return f, err
	}
	if total > uint64(c.oneWR) {
		t := reactor.Transfer{Opcode: op.opcode, Flags: op.flags, Imm: op.imm, Sink: w.sink, Tag: w.tag}
		return c.split(ctx, &t, op.several, op.remote, w.mode)
	}
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if err := c.creditFor(asked, op.opcode, w.mode); err != nil {
		return f, asked.Cause(ctx, err)
	}
	var space [stackSGEs]verbs.SGE
	s := reactor.Send{Opcode: op.opcode, Flags: op.flags, Remote: op.remote.Addr, RKey: op.remote.RKey, Imm: op.imm}
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(c.rt.mem, space[:0], op.several); err == nil {
		if f, err = c.submit(asked, &s, p, w); err == nil {
			return f, nil
		}
		if s.Lease != nil {
			s.Lease.End()
		}
	}
	c.creditBack(op.opcode)
	return f, asked.Cause(ctx, err)
}

// Conn.submit submits the request s with the payload p to the connection's queue, or only fills a slot
// of the queue (submitOpts.filled).
func (c *Conn) submit(ctx context.Context, s *reactor.Send, p reactor.Payload, w submitOpts) (f Future, err error) {
	s.Sink, s.Tag = w.sink, w.tag
	if w.filled != nil {
		*w.filled, err = c.q.Fill(ctx, s, &p, w.mode)
		return f, err
	}
	return c.q.Submit(ctx, s, &p, w.mode)
}

// leaseAll leases the memory of all slices to one operation. It appends a scatter-gather element to
// sges for each slice that is not empty. It also returns the lease of the operation:
//
//   - If there is one slice, and it is the zero Slice, the lease is nil.
//   - If there is one slice, and it is not the zero Slice, the lease is that of the slice.
//   - Otherwise the lease is a new object. Its End ends the leases of all slices.
//
// If a slice does not belong to m, was released, or is too long for one scatter-gather element, leaseAll returns an
// error and leases nothing.
func leaseAll(m *memory, sges []verbs.SGE, locals []Slice) ([]verbs.SGE, reactor.Lease, error) {
	for i := range locals {
		l := &locals[i]
		err := l.of(m)
		if err == nil && uint64(l.Len()) > math.MaxUint32 {
			err = fmt.Errorf("%w: %d bytes do not fit one scatter-gather element", ErrTooLarge, l.Len())
		}
		if err == nil {
			err = l.begin()
		}
		if err != nil {
			done := leases(locals[:i])
			done.End()
			return nil, nil, err
		}
		if n := l.Len(); n > 0 { // as Slice.SGE, without a copy of the Slice
			sges = append(sges, verbs.SGE{Addr: l.addr, Length: uint32(n), LKey: l.lkey})
		}
	}
	if len(locals) == 1 {
		if locals[0].lease == nil {
			return sges, nil, nil
		}
		return sges, locals[0].lease, nil
	}
	all := leases(slices.Clone(locals))
	return sges, &all, nil
}

// leases is the lease of an operation with several slices.
type leases []Slice

// End ends the leases of all slices. It implements reactor.Lease.
func (ls *leases) End() {
	for _, l := range *ls {
		if l.lease != nil {
			l.lease.End()
		}
	}
}
