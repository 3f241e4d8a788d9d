package reactor

import "github.com/verbena-rdma/verbena/internal/sys"

// How a slot and a lease are given back when their operation ends. Holder only.

// freeSlot frees slot i, whose outcome is recorded. Control and receive slots are free at once.
// Send slots, and leases, are only noted here: freeRetired frees them, many at a time.
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

// endLease notes that one operation with the lease l has ended. Consecutive operations with the
// same lease are counted, and endLeases ends the lease for all of them.
func (r *Reactor) endLease(l Lease) {
	if !sys.Same(l, r.lease) {
		r.endLeases()
		r.lease = l
	}
	r.leaseEnds++
}

// endLeases ends the lease r.lease for the r.leaseEnds operations that endLease counted.
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

// freeRetired ends the remaining leases and frees the slots of finished sends. A caller of finish
// must call freeRetired after its last finish.
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
