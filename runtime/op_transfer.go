package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Write starts a [WriteOp], which copies local to remote. In all other respects it is like
// [Conn.Start].
func (c *Conn) Write(ctx context.Context, local Slice, remote Remote) (Future, error) {
	var t reactor.Transfer
	t.Opcode = verbs.WRRDMAWrite
	return c.transfer(ctx, &t, &local, &remote, reactor.Block)
}

// Read starts a [ReadOp], which copies remote to local. In all other respects it is like
// [Conn.Start].
func (c *Conn) Read(ctx context.Context, local Slice, remote Remote) (Future, error) {
	var t reactor.Transfer
	t.Opcode = verbs.WRRDMARead
	return c.transfer(ctx, &t, &local, &remote, reactor.Block)
}

// Conn.transfer starts a WRITE or READ of one piece of memory. The caller has set all fields of t
// that do not describe the memory.
func (c *Conn) transfer(ctx context.Context, t *reactor.Transfer, local *Slice, remote *Remote, m reactor.SubmitMode) (f Future, err error) {
	if err := c.checkTransfer(t.Opcode, local, remote); err != nil {
		return f, err
	}
	if local.Len() > c.oneWR {
		return c.split(ctx, t, []Slice{*local}, *remote, m)
	}
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if t.Opcode == verbs.WRRDMAWriteWithImm {
		if err := c.creditFor(asked, t.Opcode, m); err != nil {
			return f, asked.Cause(ctx, err)
		}
	}
	if err = c.lease(t, local, remote); err == nil {
		if f, err = c.q.Transfer(asked, t, m); err == nil {
			return f, nil
		}
		if t.Lease != nil {
			t.Lease.End()
		}
	}
	c.creditBack(t.Opcode)
	return f, asked.Cause(ctx, err)
}

// transferWait starts op and waits for its result. op.isSimple must be true.
func (c *Conn) transferWait(ctx context.Context, op *Op) (Result, error) {
	local := &op.one[0]
	if err := c.checkTransfer(op.opcode, local, &op.remote); err != nil {
		return Result{}, err
	}
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return Result{}, err
	}
	var t reactor.Transfer
	t.Opcode, t.Flags = op.opcode, op.flags
	if err := c.lease(&t, local, &op.remote); err != nil {
		return Result{}, err
	}
	r, err := c.q.TransferWait(asked, &t)
	return r, asked.Cause(ctx, err)
}

// isSimple reports whether op is a READ, or a WRITE without immediate data, of one piece of memory
// and one work request. Such an operation consumes no receive of the peer.
func (op *Op) isSimple(c *Conn) bool {
	return op.kind == startTransfer && op.several == nil && op.opcode != verbs.WRRDMAWriteWithImm && op.one[0].Len() <= c.oneWR
}

// checkTransfer returns an error if a transfer of one piece of memory must not start: the connection
// has ended, the local memory is not writable, or the descriptor does not permit the transfer.
func (c *Conn) checkTransfer(op verbs.WROpcode, local *Slice, remote *Remote) error {
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

// Remote.check returns an error if r has fewer than n bytes, or does not grant all access rights in
// need.
func (r Remote) check(n uint64, need verbs.AccessFlags) error {
	if n > r.Length {
		return fmt.Errorf("%w: the operation needs %d bytes, the descriptor has %d", ErrRemoteRange, n, r.Length)
	}
	if r.Access&need != need {
		return fmt.Errorf("%w: it needs %v, the descriptor grants %v", ErrPermission, need, r.Access)
	}
	return nil
}

var errUnwritable = fmt.Errorf("%w: the local memory of a READ is not registered for LOCAL_WRITE", ErrPermission)

// Conn.lease sets the fields of t that describe the memory, and leases the local memory to t.
func (c *Conn) lease(t *reactor.Transfer, local *Slice, remote *Remote) error {
	c.fill(t, local, remote)
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

// Conn.fill sets the fields of t that describe the memory, except t.Lease.
func (c *Conn) fill(t *reactor.Transfer, local *Slice, remote *Remote) {
	// Set the fields one by one. For a composite literal the compiler would fill a temporary variable
	// with small stores, and then copy it with large loads, which stall until the stores are done.
	t.Remote, t.RKey = remote.Addr, remote.RKey
	t.Local.Addr, t.Local.Length, t.Local.LKey = local.addr, uint32(local.Len()), local.lkey
	t.Flags |= c.inlineFlag(t.Opcode, local)
}

// inlineFlag returns INLINE for a small WRITE from memory that the processor may read (see fetched),
// and otherwise 0. With INLINE the request carries the data, so the device need not fetch the data.
func (c *Conn) inlineFlag(op verbs.WROpcode, local *Slice) verbs.SendFlags {
	n := len(local.b) // 0 for memory that this process cannot access
	if op == verbs.WRRDMARead || n == 0 || n > c.inline || local.access&fetched != 0 {
		return 0
	}
	return verbs.SendInline
}

// fetched is the set of access flags of memory that only the device reads, and that is never sent
// inline. For zero-based memory, the address in a request is not a virtual address of this process,
// so the processor cannot read from that address. If the processor reads on-demand memory, a page
// fault may stall the holder of the reactor's turn.
const fetched = verbs.AccessZeroBased | verbs.AccessOnDemand
