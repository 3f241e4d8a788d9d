package runtime

import "github.com/verbena-rdma/verbena/reactor"

// SinkContext is the context of a call to a Sink: see [Conn.StartFromSink].
type SinkContext = reactor.SinkContext

// StartFromSink is TryStartTo for a Sink that is called with t. It starts a WRITE (without
// immediate data) or READ of one piece without the structures that submitters share, which
// takes about three quarters of the processor time of TryStartTo. It calls TryStartTo for all
// other operations, and if t is not a current context of the connection's reactor: t is zero,
// belongs to another reactor, or its results have been delivered. Operations keep their order,
// whichever of the two starts them. Only the goroutine that called Complete may call
// StartFromSink.
//
// Slots cached for a sink's next operations are freed when all sinks of the
// pass were called; until then other submitters may find the send queue full.
func (c *Conn) StartFromSink(t SinkContext, op *Op, sink Sink, tag uint64) error {
	if !c.q.InSink(t) {
		return c.TryStartTo(op, sink, tag)
	}
	if !op.isSimple(c) || sink == nil {
		c.sh.r.ReleaseSinkCaches() // TryStartTo may need a cached slot
		return c.TryStartTo(op, sink, tag)
	}
	local := &op.one[0]
	if err := c.checkTransfer(op.opcode, local, &op.remote); err != nil {
		return err
	}
	var tr reactor.Transfer
	tr.Opcode, tr.Flags, tr.Sink, tr.Tag = op.opcode, op.flags, sink, tag
	c.fill(&tr, local, &op.remote)
	if l := local.lease; l != nil {
		if l.memory != c.rt.mem {
			return local.of(c.rt.mem)
		}
		if !l.live(local.gen) {
			return ErrReleased
		}
		if s := &c.sh.sinkLeases; s.n > 0 && s.of == l && s.gen == local.gen {
			s.n--
		} else if !s.refill(c.sh.r, l, local.gen) {
			return ErrReleased
		}
		tr.Lease = l
	}
	err := c.q.PostFromSink(t, &tr)
	if err != nil && tr.Lease != nil {
		tr.Lease.End()
		c.sh.sinkLeases.Release() // the cache alone must not make memory look in flight
	}
	return err
}

// sinkLeases caches operations begun on a lease for sinks that are about to start some. It
// begins 1, 2, 4 and so on at a time, up to reactor.MaxCachedSlots, because each change of
// the lease's count is a locked instruction. At the end of the pass it ends those that were
// not started. One per shard; used by the holder.
//
// The cache alone never makes memory look in flight: while it is not empty, an operation that a
// sink started on the lease is in flight and unposted. If that operation could not be started,
// or is refused because its queue is released, the cache is released before the error is reported.
type sinkLeases struct {
	of   *lease
	gen  uint64
	n    int // begun and not started
	next int // how many the next refill begins
}

// refill begins operations on l, one of them for the caller. It returns
// false if the generation of l has ended.
func (s *sinkLeases) refill(r *reactor.Reactor, l *lease, gen uint64) bool {
	if s.of != l || s.gen != gen {
		s.Release()
		s.of, s.gen, s.next = l, gen, 1
	}
	if !l.beginN(gen, s.next) {
		return false
	}
	s.n, s.next = s.next-1, min(2*s.next, reactor.MaxCachedSlots)
	r.SetSinkCache(s)
	return true
}

// Release implements reactor.SinkCache.
func (s *sinkLeases) Release() {
	if s.n > 0 {
		s.of.EndN(s.n)
	}
	*s = sinkLeases{}
}
