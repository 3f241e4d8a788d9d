package runtime

import "github.com/verbena-rdma/verbena/reactor"

// SinkContext is the context of a call of Sink.Complete: see [Conn.StartFromSink].
type SinkContext = reactor.SinkContext

// StartFromSink starts op as TryStartTo does, but takes about three quarters of the processor time
// of TryStartTo. Only the method Complete of a Sink may call StartFromSink, on the goroutine that
// runs Complete. The argument t is the SinkContext that Complete got.
//
// StartFromSink saves time only for a READ, or a WRITE without immediate data, of one piece of memory
// and one work request. For such an operation it does not use the structures that submitters share.
// For all other operations StartFromSink calls TryStartTo. It also calls TryStartTo if t is zero,
// belongs to another reactor, or has expired. (A SinkContext expires when the results of its pass
// have been delivered.) If a sink calls both StartFromSink and TryStartTo, the operations start in
// the order of the calls.
//
// StartFromSink caches slots of the send queue for the next operations of sinks. The reactor frees
// the cached slots when it has called all sinks of the pass. Until then other submitters may find the
// send queue full.
func (c *Conn) StartFromSink(t SinkContext, op *Op, sink Sink, tag uint64) error {
	if !c.q.InSink(t) {
		return c.TryStartTo(op, sink, tag)
	}
	if !op.isSimple(c) || sink == nil {
		c.sh.r.ReleaseSinkCaches() // frees the cached slots, because TryStartTo may need a free slot
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
		c.sh.sinkLeases.Release() // the comment of the type sinkLeases has the reason
	}
	return err
}

// sinkLeases counts operations on a lease before sinks start these operations. A lease counts the
// operations in flight on its memory, and each change of the count is a locked instruction. So
// sinkLeases adds several operations with one change: first 1, then 2, then 4, up to
// reactor.MaxCachedSlots. The operations that no sink has started yet are the cached operations. At
// the end of the pass sinkLeases subtracts the cached operations from the count. Each shard (a
// reactor of the runtime) has one sinkLeases. Only the holder of the turn uses it.
//
// A cached operation counts as an operation in flight, so Region.Close returns ErrBusy, for example.
// This makes no difference while another operation is really in flight on the same lease. Usually
// there is such an operation as long as operations are cached: a sink has started it in this pass,
// and the reactor has not posted it yet. There are two exceptions: the operation could not be
// started, or its queue is released, which ends the operation. In both cases the cache is released
// before the error of the operation is reported.
type sinkLeases struct {
	of   *lease
	gen  uint64
	n    int // number of cached operations
	next int // how many operations the next refill adds to the lease's count
}

// sinkLeases.refill adds s.next operations to the count of l. The first is the caller's operation, the
// rest are cached. If generation gen of the lease was released, refill returns false.
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

// Release subtracts the cached operations from the lease's count. It implements reactor.SinkCache.
func (s *sinkLeases) Release() {
	if s.n > 0 {
		s.of.EndN(s.n)
	}
	*s = sinkLeases{}
}
