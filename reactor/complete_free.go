package reactor

import "github.com/verbena-rdma/verbena/internal/sys"

// The end of an operation in its queue. Holder only.

// freeSlot frees a slot whose outcome is recorded. For send slots and leases it leaves the last
// step to freeRetired, which does it for a whole batch.
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

// endLease ends a lease for one operation. It only counts consecutive operations with the same
// lease; endLeases then ends the lease for all of them.
func (r *Reactor) endLease(l Lease) {
	if !sys.Same(l, r.lease) {
		r.endLeases()
		r.lease = l
	}
	r.leaseEnds++
}

// endLeases ends the lease that endLease counted.
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

// freeRetired ends the remaining leases and frees the slots of finished sends. It must follow
// every finish.
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
