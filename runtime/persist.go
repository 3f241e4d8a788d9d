package runtime

import (
	"context"
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// What makes remote data last: a WRITE tells only that the peer's device has
// taken the data. FLUSH tells that it is where others see it, or where a power
// failure leaves it. Both wait on ctx for room in the send queue and return the
// future of the operation; errors are those of the one-sided operations, and
// verbs.ErrNotSupported where the device cannot.

// Flush makes what this connection wrote to remote before visible to every
// agent of the peer's host (verbs.FlushGlobal), or persistent there
// (verbs.FlushPersistent), or both. The peer's region must have been registered
// with AccessFlushGlobal or AccessFlushPersistent.
//
// Implements: ibv_wr_flush, selectivity range.
func (c *Conn) Flush(ctx context.Context, remote Remote, p verbs.FlushPlacement) (Future, error) {
	return c.flush(ctx, remote, p, way{})
}

func (c *Conn) flush(ctx context.Context, remote Remote, p verbs.FlushPlacement, w way) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	if err := c.Err(); err != nil {
		return f, err
	}
	var need verbs.AccessFlags
	if p&verbs.FlushGlobal != 0 {
		need |= verbs.AccessFlushGlobal
	}
	if p&verbs.FlushPersistent != 0 {
		need |= verbs.AccessFlushPersistent
	}
	if remote.Length > math.MaxUint32 {
		return f, fmt.Errorf("%w: a FLUSH of %d bytes, at most %d at once (Remote.At takes a part)", ErrRemoteRange, remote.Length, uint32(math.MaxUint32))
	}
	if err := remote.check(remote.Length, need); err != nil {
		return f, err
	}
	return c.submit(ctx, &reactor.Send{
		Opcode: verbs.WRFlush, Remote: remote.Addr, RKey: remote.RKey,
		Flush: reactor.Flush{Length: remote.Length, Placement: p, Selectivity: verbs.FlushRange},
	}, reactor.Payload{}, w)
}

// AtomicWrite stores the 8 bytes at the beginning of remote, as a native-endian
// word at an address that is a multiple of 8; nobody ever sees a part of it. It is
// what publishes data that was written, and flushed, before it.
//
// Implements: ibv_wr_atomic_write.
func (c *Conn) AtomicWrite(ctx context.Context, remote Remote, value uint64) (Future, error) {
	return c.atomicWrite(ctx, remote, value, way{})
}

func (c *Conn) atomicWrite(ctx context.Context, remote Remote, value uint64, w way) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	if err := c.Err(); err != nil {
		return f, err
	}
	if err := remote.check(wordSize, verbs.AccessRemoteWrite); err != nil {
		return f, err
	}
	return c.submit(ctx, &reactor.Send{Opcode: verbs.WRAtomicWrite, Remote: remote.Addr, RKey: remote.RKey, Swap: value}, reactor.Payload{}, w)
}
