package reactor

import "github.com/verbena-rdma/verbena/internal/sys"

// This file frees slots and ends leases when operations end. Holder only.

// freeSlot frees slot i. The outcome of the operation is recorded already. A control or receive
// slot is free at once. A send slot goes to q.retired, from where freeRetired frees many slots
// together.
func (q *Queue) freeSlot(i uint32, sl *slot) {
	lease, kind := sl.lease, sl.kind
	sl.sink, sl.lease, sl.kind, sl.posted = nil, nil, KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	if kind == KindMarker {
		q.marker = false
		return
	}
	if lease != nil {
		q.r.endLease(lease)
	}
	switch {
	case i < uint32(q.cfg.SendDepth):
		q.retired = append(q.retired, i)
	case i < uint32(q.cfg.sends()):
		q.r.stats.Completions++
		q.ctrlFree.Put(i - uint32(q.cfg.SendDepth+1))
	default:
		q.r.stats.Completions++
		q.recvFree.Put(i - uint32(q.cfg.sends()))
	}
}

// endLease counts the end of one operation with the lease l. If the operations counted so far have
// another lease, endLease first calls endLeases for them.
func (r *Reactor) endLease(l Lease) {
	if !sys.Same(l, r.lease) {
		r.endLeases()
		r.lease = l
	}
	r.leaseEnds++
}

// endLeases ends the lease r.lease for the r.leaseEnds operations that endLease has counted.
func (r *Reactor) endLeases() {
	l, n := r.lease, r.leaseEnds
	r.lease, r.leaseEnds = nil, 0
	if s, ok := l.(SharedLease); ok && n > 1 {
		s.EndN(n)
		return
	}
	for range n {
		l.End()
	}
}

// freeRetired calls endLeases, and frees the slots in q.retired. A function that calls finish must
// call freeRetired after its last call of finish.
func (q *Queue) freeRetired() {
	if q.r.leaseEnds > 0 {
		q.r.endLeases()
	}
	if len(q.retired) == 0 {
		return
	}
	q.r.stats.Completions += uint64(len(q.retired))
	q.sendFree.PutN(q.retired)
	q.retired = q.retired[:0]
}
