package runtime

import (
	"context"
	"slices"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// stackSGEs is how many scatter-gather elements of an operation fit on the stack. A longer list is
// allocated on the heap.
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
	asked, err := reactor.DoneOf(ctx)
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

// submit submits s to the connection's queue.
func (c *Conn) submit(ctx context.Context, s *reactor.Send, p reactor.Payload, w submitOpts) (Future, error) {
	s.Sink, s.Tag = w.sink, w.tag
	return c.q.Submit(ctx, s, &p, w.mode)
}

// leaseAll begins a lease of each slice for one operation, and appends the slices' scatter-gather
// elements to sges. It also returns the lease of the operation:
//
//   - for one zero Slice: nil;
//   - for one other slice: the lease of this slice;
//   - for several slices: a new object that ends the leases of all of them.
//
// If a slice does not belong to m or was released, leaseAll returns an error and keeps no lease.
func leaseAll(m *memory, sges []verbs.SGE, locals []Slice) ([]verbs.SGE, reactor.Lease, error) {
	for i, l := range locals {
		err := l.of(m)
		if err == nil {
			err = l.begin()
		}
		if err != nil {
			done := leases(locals[:i])
			done.End()
			return nil, nil, err
		}
		if l.Len() > 0 {
			sges = append(sges, l.SGE())
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

// End implements reactor.Lease. It ends the leases of all slices.
func (ls *leases) End() {
	for _, l := range *ls {
		if l.lease != nil {
			l.lease.End()
		}
	}
}
