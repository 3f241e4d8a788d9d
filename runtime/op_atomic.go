package runtime

import (
	"context"
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// wordSize is the size in bytes of the remote word that an atomic or an ATOMIC_WRITE changes.
const wordSize = 8

// Conn.atomic starts an operation that uses no local memory of the caller: an atomic, an
// ATOMIC_WRITE or a FLUSH. If the device does not execute ATOMIC_WRITE or FLUSH, other requests take
// their place (op_instead.go).
func (c *Conn) atomic(ctx context.Context, op *Op, w submitOpts) (f Future, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if err := c.Err(); err != nil {
		return f, err
	}
	s := reactor.Send{Opcode: op.opcode, Flags: op.flags, Remote: op.remote.Addr, RKey: op.remote.RKey}
	n, need := uint64(wordSize), verbs.AccessRemoteAtomic
	switch op.kind {
	case startAtomic:
		s.Compare, s.Add, s.Swap = op.compareOrAdd, op.compareOrAdd, op.swapTo
	case startAtomicWrite:
		s.Swap, need = op.swapTo, verbs.AccessRemoteWrite
	case startFlush:
		if n, need = op.remote.Length, 0; n > math.MaxUint32 {
			return f, fmt.Errorf("%w: a FLUSH of %d bytes, at most %d in one operation (Remote.At returns a part)", ErrRemoteRange, n, uint32(math.MaxUint32))
		}
		if op.placement&verbs.FlushGlobal != 0 {
			need |= verbs.AccessFlushGlobal
		}
		if op.placement&verbs.FlushPersistent != 0 {
			need |= verbs.AccessFlushPersistent
		}
		s.Flush = reactor.Flush{Length: n, Placement: op.placement, Selectivity: verbs.FlushRange}
	}
	if err := op.remote.check(n, need); err != nil {
		return f, err
	}
	switch {
	case op.kind == startAtomicWrite && !c.rt.attr.Opcodes.Has(verbs.WRAtomicWrite):
		f, err = c.writeWord(asked, &s, w)
	case op.kind == startFlush && !c.rt.attr.Opcodes.Has(verbs.WRFlush):
		f, err = c.flushByRead(asked, op, &s, w)
	default:
		f, err = c.submit(asked, &s, reactor.Payload{}, w)
	}
	return f, asked.Cause(ctx, err)
}
