package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// dest is the destination of a datagram.
type dest struct {
	ah        uint64
	qpn, qkey uint32
}

// binding is the new binding of a window in a BIND_MW; the new key and the first address are in
// the request.
type binding struct {
	mw, mr, length uint64
	access         verbs.AccessFlags
}

// flushRange is the range of a FLUSH.
type flushRange struct {
	length uint64
	place  verbs.FlushPlacement
	reach  verbs.FlushSelectivity
}

// to returns the request as a datagram.
func (r SR) to(ah verbs.AH, qpn, qkey uint32) SR {
	r.ud = &dest{ah: ah.Handle(), qpn: qpn, qkey: qkey}
	return r
}

// bindOf binds window w to n bytes at off of region r, with the next key.
func bindOf(id uint64, w verbs.MW, r *Region, off, n int, access verbs.AccessFlags) SR {
	return SR{id: id, op: verbs.WRBindMW, flags: signaled, remote: r.at(off), rkey: verbs.IncRKey(w.RKey()),
		bind: &binding{mw: w.Handle(), mr: r.mr.Handle(), length: uint64(n), access: access}}
}

func localInvOf(id uint64, key uint32) SR {
	return SR{id: id, op: verbs.WRLocalInv, flags: signaled, invalidate: key}
}

func sendInvOf(id uint64, key uint32, s ...verbs.SGE) SR {
	return SR{id: id, op: verbs.WRSendWithInv, flags: signaled, invalidate: key, sg: s}
}

func flushOf(id uint64, at *Region, off, n int, p verbs.FlushPlacement, s verbs.FlushSelectivity) SR {
	return SR{id: id, op: verbs.WRFlush, flags: signaled, remote: at.at(off), rkey: at.mr.RKey(),
		flush: &flushRange{length: uint64(n), place: p, reach: s}}
}

func atomicWriteOf(id uint64, at *Region, off int, v uint64) SR {
	return SR{id: id, op: verbs.WRAtomicWrite, flags: signaled, remote: at.at(off), rkey: at.mr.RKey(), compare: v}
}

// key returns the request with another remote key.
func (r SR) key(k uint32) SR { r.rkey = k; return r }
