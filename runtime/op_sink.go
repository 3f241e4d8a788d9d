package runtime

import "github.com/verbena-rdma/verbena/reactor"

// SinkContext is what a Sink is called with: see [Conn.StartFromSink].
type SinkContext = reactor.SinkContext

// StartFromSink is TryStartTo for a Sink that is called with t: it starts a WRITE or READ of
// one piece past what submitters share, for about three quarters of the processor time.
// Without a turn of the connection's reactor (t is zero, or another's, or the results of
// its turn were delivered), and for other operations, it is TryStartTo. Operations keep their
// order whichever of the two starts them. Only for the goroutine that Complete is called on.
//
// Room that is taken for what a sink may start next is given back when all sinks of the
// turn were called; until then others may find the send queue full.
func (c *Conn) StartFromSink(t SinkContext, op *Op, sink Sink, tag uint64) error {
	if !c.q.InSink(t) {
		return c.TryStartTo(op, sink, tag)
	}
	if !op.isSimple(c) || sink == nil {
		c.sh.r.ReleaseSinkCaches() // it may be the room that this one needs
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
		c.sh.sinkLeases.Release() // none of them may have an operation in flight beside it
	}
	return err
}

// sinkLeases are operations begun on a lease, for sinks that are about to start some: many at
// a time, because each change of the lease's count is a locked instruction. They are
// begun by one, two, four and so on, up to reactor.MaxCachedSlots, and what is left is ended
// with the turn. Of a shard; the holder's.
//
// While there are any, an operation that a sink has started on the lease is in flight,
// and is not posted yet; if it could not be started, or is refused because its queue is
// released, they are given back before anybody is told. So nobody finds memory in flight
// for the loans alone.
type sinkLeases struct {
	of   *lease
	gen  uint64
	n    int // begun, and not started
	next int // to be begun next
}

// refill begins some, of which one is the caller's: false if l may begin none any more.
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

// GiveBack implements reactor.SinkCache.
func (s *sinkLeases) Release() {
	if s.n > 0 {
		s.of.EndN(s.n)
	}
	*s = sinkLeases{}
}
