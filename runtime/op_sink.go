package runtime

import "github.com/verbena-rdma/verbena/reactor"

// SinkContext is the context of a call to a Sink: see [Conn.StartFromSink].
type SinkContext = reactor.SinkContext

// StartFromSink starts op as TryStartTo does. Only a Sink may call it, on the goroutine that runs the
// Sink's method Complete. The argument t is the SinkContext that Complete got.
//
// For a WRITE (without immediate data) or a READ, of one piece in one work request, StartFromSink
// does not use the structures that submitters share. So it takes about three quarters of the
// processor time of TryStartTo. For all other operations StartFromSink calls TryStartTo. It also calls
// TryStartTo if t is zero, belongs to another reactor, or has expired. (A SinkContext expires when the
// results of its pass have been delivered.) Operations start in the order of the calls, whichever of
// the two methods is used.
//
// StartFromSink caches slots of the send queue for the next operations of sinks. The reactor frees
// the cached slots when it has called all sinks of the pass. Until then other submitters may find the
// send queue full.
func (c *Conn) StartFromSink(t SinkContext, op *Op, sink Sink, tag uint64) error {
	if !c.q.InSink(t) {
		return c.TryStartTo(op, sink, tag)
	}
	if !op.isSimple(c) || sink == nil {
		c.sh.r.ReleaseSinkCaches() // frees the cached slots: TryStartTo may need one
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
		c.sh.sinkLeases.Release() // why: see the type sinkLeases
	}
	return err
}

// sinkLeases caches operations that were begun on a lease and that sinks have not started yet. Each
// change of the lease's count is a locked instruction. So sinkLeases begins several operations with
// one change of the count: first 1, then 2, then 4, up to reactor.MaxCachedSlots.
// At the end of the pass it ends the operations that no sink has started. Each shard (a reactor of
// the runtime) has one sinkLeases. Only the holder of the turn uses it.
//
// Region.Close, for example, takes a cached operation for an operation in flight. This does no harm
// while an operation that a sink has started on the same lease is really in flight. Usually there is
// such an operation, still unposted, while the cache is not empty. There are two exceptions: the
// operation could not be started, or it is refused because its queue is released. In both cases the
// cache is released before the error is reported.
type sinkLeases struct {
	of   *lease
	gen  uint64
	n    int // how many operations are cached
	next int // how many operations the next refill begins
}

// refill begins s.next operations on l: one for the caller, the others for the cache. It returns
// false if generation gen of the lease was released.
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
