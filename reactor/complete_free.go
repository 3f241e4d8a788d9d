package reactor

import "github.com/verbena-rdma/verbena/internal/sys"

// The functions of this file free slots and end leases when operations end. Only the holder of the
// turn calls them.

// freeSlot frees slot i. The caller has already recorded the outcome of the operation. The marker's
// slot is on no free list, and freeSlot posts it again if another marker is to follow. A control slot goes back to its free list at once. Any other slot goes to
// q.retired or q.retiredRecvs: freeRetired frees all slots of each together.
func (q *Queue) freeSlot(i uint32, sl *slot) {
	lease, kind := sl.lease, sl.kind
	sl.sink, sl.lease, sl.kind, sl.posted = nil, nil, KindNone, false
	sl.gen = (sl.gen + 1) & genMask
	if kind == KindMarker {
		q.marker = false
		if q.remark && q.failed.get() == nil && q.quarantine == nil {
			q.postMarker()
		}
		return
	}
	if lease != nil {
		q.r.endLease(lease)
	}
	switch {
	case i < uint32(q.cfg.SendDepth):
		q.retired = append(q.retired, i)
	case i < q.firstRecv:
		q.r.stats.Completions++
		q.ctrlFree.Put(i - uint32(q.cfg.SendDepth+1))
	default:
		q.retiredRecvs = append(q.retiredRecvs, i-q.firstRecv)
	}
}

// endLease counts the end of one operation with the lease l. If the operations counted so far have a
// different lease, endLease first calls endLeases for these operations.
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

// freeRetired calls endLeases, and frees the slots in q.retired and q.retiredRecvs. After every series of
// calls of finish, completeFast or received, freeRetired must be called once.
func (q *Queue) freeRetired() {
	if q.r.leaseEnds > 0 {
		q.r.endLeases()
	}
	if len(q.retired) > 0 {
		q.r.stats.Completions += uint64(len(q.retired))
		q.sendFree.PutN(q.retired)
		q.retired = q.retired[:0]
	}
	if len(q.retiredRecvs) > 0 {
		q.r.stats.Completions += uint64(len(q.retiredRecvs))
		q.recvFree.PutN(q.retiredRecvs)
		q.retiredRecvs = q.retiredRecvs[:0]
	}
}
