package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// The one-sided operations. What they have in common:
//
// They check bounds, permission and the connection's state, lease the local
// memory, wait on ctx for room in the send queue, and return the future of the
// operation. They do not wait for it. The local memory is the device's until the
// future is settled, whoever stops waiting.
//
// Errors at once: ErrReleased for memory given back, verbs.ErrInvalid for another runtime's, ErrRemoteRange and
// ErrPermission for remote memory, the connection's cause, the context's error,
// ErrNilContext.
// Errors of the future: *verbs.WCError; the connection has failed then, or is
// about to: its Err may know the cause a moment later.

// Write copies local into remote memory.
//
// Implements: ibv_post_send, RDMA_WRITE.
func (c *Conn) Write(ctx context.Context, local Slice, remote Remote) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMAWrite, []Slice{local}, remote, 0, way{})
}

// WriteV gathers locals, in order, into remote memory; at most
// Options.MaxSGE of them.
func (c *Conn) WriteV(ctx context.Context, locals []Slice, remote Remote) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMAWrite, locals, remote, 0, way{})
}

// WriteImm is Write that also delivers imm to the peer, after the data, as a
// message. On a managed connection it waits on ctx for a credit, too.
//
// Implements: ibv_post_send, RDMA_WRITE_WITH_IMM.
func (c *Conn) WriteImm(ctx context.Context, local Slice, remote Remote, imm uint32) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMAWriteWithImm, []Slice{local}, remote, imm, way{})
}

// WriteImmV is WriteImm that gathers.
func (c *Conn) WriteImmV(ctx context.Context, locals []Slice, remote Remote, imm uint32) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMAWriteWithImm, locals, remote, imm, way{})
}

// Read copies remote memory into local.
//
// Implements: ibv_post_send, RDMA_READ.
func (c *Conn) Read(ctx context.Context, local Slice, remote Remote) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMARead, []Slice{local}, remote, 0, way{})
}

// ReadV scatters remote memory over locals, in order; at most Options.MaxSGE.
func (c *Conn) ReadV(ctx context.Context, locals []Slice, remote Remote) (Future, error) {
	return c.oneSided(ctx, verbs.WRRDMARead, locals, remote, 0, way{})
}

// CompareAndSwap replaces the 8 bytes at the beginning of remote by swap if they
// are compare, as a native-endian word at an address that is a multiple of 8.
// Result.Value is what they were before. It is atomic against other operations
// of the same device.
//
// Implements: ibv_post_send, ATOMIC_CMP_AND_SWP.
func (c *Conn) CompareAndSwap(ctx context.Context, remote Remote, compare, swap uint64) (Future, error) {
	return c.atomic(ctx, &reactor.Send{Opcode: verbs.WRAtomicCmpAndSwp, Compare: compare, Swap: swap}, remote, way{})
}

// FetchAndAdd adds to the 8 bytes at the beginning of remote; otherwise as
// CompareAndSwap.
//
// Implements: ibv_post_send, ATOMIC_FETCH_AND_ADD.
func (c *Conn) FetchAndAdd(ctx context.Context, remote Remote, add uint64) (Future, error) {
	return c.atomic(ctx, &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Add: add}, remote, way{})
}

// wordSize is the size of an atomic's target.
const wordSize = 8

func (c *Conn) atomic(ctx context.Context, s *reactor.Send, remote Remote, w way) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	if err := c.Err(); err != nil {
		return f, err
	}
	if err := remote.check(wordSize, verbs.AccessRemoteAtomic); err != nil {
		return f, err
	}
	s.Remote, s.RKey = remote.Addr, remote.RKey
	return c.submit(ctx, s, reactor.Payload{}, w)
}

// check tells whether n bytes of r may be used like this.
func (r Remote) check(n uint64, need verbs.AccessFlags) error {
	if n > r.Length {
		return fmt.Errorf("%w: %d bytes wanted, there are %d", ErrRemoteRange, n, r.Length)
	}
	if r.Access&need != need {
		return fmt.Errorf("%w: it needs %v, the descriptor grants %v", ErrPermission, need, r.Access)
	}
	return nil
}

var errUnwritable = fmt.Errorf("%w: the local memory of a READ is not registered for LOCAL_WRITE", ErrPermission)

// stackSGEs bounds the elements kept on the stack.
const stackSGEs = 8

func (c *Conn) oneSided(ctx context.Context, op verbs.WROpcode, locals []Slice, remote Remote, imm uint32, w way) (f Future, err error) {
	if len(locals) == 1 {
		return c.oneToOne(ctx, op, &locals[0], &remote, imm, &w)
	}
	if err := c.Err(); err != nil {
		return f, err
	}
	var total uint64
	for _, l := range locals {
		total += uint64(l.Len())
		if op == verbs.WRRDMARead && !l.writable() {
			return f, errUnwritable
		}
	}
	need := verbs.AccessRemoteWrite
	if op == verbs.WRRDMARead {
		need = verbs.AccessRemoteRead
	}
	if err := remote.check(total, need); err != nil {
		return f, err
	}
	if total > uint64(c.oneWR) {
		return c.split(ctx, op, locals, remote, imm, w)
	}
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return f, err
	}
	if err := c.creditFor(asked, op, w); err != nil {
		return f, asked.Why(ctx, err)
	}
	var space [stackSGEs]verbs.SGE
	s := reactor.Send{Opcode: op, Remote: remote.Addr, RKey: remote.RKey, Imm: imm}
	var p reactor.Payload
	if p.SGEs, s.Lease, err = leaseAll(c.rt.mem, space[:0], locals); err == nil {
		if f, err = c.submit(asked, &s, p, w); err == nil {
			return f, nil
		}
		if s.Lease != nil {
			s.Lease.End()
		}
	}
	c.creditBack(op)
	return f, asked.Why(ctx, err)
}

// oneToOne is oneSided for one piece, which nearly all have: without lists and copies.
func (c *Conn) oneToOne(ctx context.Context, op verbs.WROpcode, local *Slice, remote *Remote, imm uint32, w *way) (f Future, err error) {
	if err := c.mayTransfer(op, local, remote); err != nil {
		return f, err
	}
	if local.Len() > c.oneWR {
		return c.split(ctx, op, []Slice{*local}, *remote, imm, *w)
	}
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return f, err
	}
	if op == verbs.WRRDMAWriteWithImm {
		if err := c.creditFor(asked, op, *w); err != nil {
			return f, asked.Why(ctx, err)
		}
	}
	var t reactor.Transfer
	t.Imm, t.Sink, t.Tag = imm, w.sink, w.tag
	if err = c.lend(&t, op, local, remote); err == nil {
		if f, err = c.q.Transfer(asked, &t, w.manner); err == nil {
			return f, nil
		}
		if t.Lease != nil {
			t.Lease.End()
		}
	}
	c.creditBack(op)
	return f, asked.Why(ctx, err)
}

// transferWait is oneToOne, without an immediate, that waits for the outcome.
func (c *Conn) transferWait(ctx context.Context, op verbs.WROpcode, local *Slice, remote *Remote) (Result, error) {
	if err := c.mayTransfer(op, local, remote); err != nil {
		return Result{}, err
	}
	if local.Len() > c.oneWR {
		return postedWait(ctx, func(asked reactor.Asked) (Future, error) {
			return c.split(asked, op, []Slice{*local}, *remote, 0, way{manner: reactor.Quiet})
		})
	}
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return Result{}, err
	}
	var t reactor.Transfer
	if err := c.lend(&t, op, local, remote); err != nil {
		return Result{}, err
	}
	r, err := c.q.TransferWait(asked, &t)
	return r, asked.Why(ctx, err)
}

// mayTransfer checks a transfer of one piece.
func (c *Conn) mayTransfer(op verbs.WROpcode, local *Slice, remote *Remote) error {
	if err := c.Err(); err != nil {
		return err
	}
	need := verbs.AccessRemoteWrite
	if op == verbs.WRRDMARead {
		if need = verbs.AccessRemoteRead; !local.writable() {
			return errUnwritable
		}
	}
	if n := uint64(local.Len()); n > remote.Length || remote.Access&need == 0 {
		return remote.check(n, need)
	}
	return nil
}

// lend fills in a transfer of one piece, and leases the local memory to it.
func (c *Conn) lend(t *reactor.Transfer, op verbs.WROpcode, local *Slice, remote *Remote) error {
	// Field by field: a literal would be made elsewhere in small stores and copied in
	// large loads, for which the processor waits until those are through.
	t.Opcode, t.Remote, t.RKey = op, remote.Addr, remote.RKey
	t.Local.Addr, t.Local.Length, t.Local.LKey = local.addr, uint32(local.Len()), local.lkey
	t.Flags = c.carries(op, local)
	if l := local.lease; l != nil {
		if l.memory != c.rt.mem {
			return local.of(c.rt.mem)
		}
		if !l.begin(local.gen) {
			return ErrReleased
		}
		t.Lease = l
	}
	return nil
}

// carries is INLINE for what a request of one piece carries in itself: few bytes of a
// WRITE. The device then has them with the request, and need not fetch them.
func (c *Conn) carries(op verbs.WROpcode, local *Slice) verbs.SendFlags {
	n := len(local.b) // 0 for memory that this process does not see
	if op == verbs.WRRDMARead || n == 0 || n > c.inline || local.access&fetched != 0 {
		return 0
	}
	return verbs.SendInline
}

// fetched is the access of memory that only the device reads: whose address in requests is
// none of the processor's, and whose pages may not be there, for which the processor would
// wait while it holds the turn.
const fetched = verbs.AccessZeroBased | verbs.AccessOnDemand

// submit posts.
func (c *Conn) submit(ctx context.Context, s *reactor.Send, p reactor.Payload, w way) (Future, error) {
	s.Sink, s.Tag = w.sink, w.tag
	return c.q.Submit(ctx, s, &p, w.manner)
}

// creditFor takes a credit if the peer spends a receive on op, waiting for one on asked.
func (c *Conn) creditFor(asked reactor.Asked, op verbs.WROpcode, w way) error {
	if c.credits == nil || op == verbs.WRRDMAWrite || op == verbs.WRRDMARead {
		return nil
	}
	if c.credits.TryAcquire() {
		return nil
	}
	if w.manner == reactor.Try {
		if cause := c.Err(); cause != nil {
			return cause
		}
		return ErrNoCredit
	}
	c.sh.r.Wake() // what was submitted quietly, here or in a batch, may bring the credit
	if err := c.credits.Acquire(asked); err != nil {
		if cause := c.Err(); cause != nil {
			return cause
		}
		if err == ring.ErrDone {
			err = asked.Err()
		}
		return fmt.Errorf("waiting for one of the peer's %d receives: %w", c.credits.Cap(), err)
	}
	return nil
}

// creditBack undoes creditFor for what was not posted.
func (c *Conn) creditBack(op verbs.WROpcode) {
	if c.credits != nil && op != verbs.WRRDMAWrite && op != verbs.WRRDMARead {
		c.credits.Restore(1) // false: the peer gave it back unused, and is found out when it speaks again
	}
}

// leaseAll begins the lease of every slice and lists their elements. One lease is
// given to the operation as it is; several are bundled, which allocates.
// All must be m's.
func leaseAll(m *Memory, sges []verbs.SGE, locals []Slice) ([]verbs.SGE, reactor.Lease, error) {
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

// leases are those of several slices of one operation.
type leases []Slice

// End implements reactor.Lease.
func (ls *leases) End() {
	for _, l := range *ls {
		if l.lease != nil {
			l.lease.End()
		}
	}
}
