package cm

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// timewait is the connections in TIMEWAIT whose owners have closed them. Nobody
// waits for their end, so no more is kept than the numbers that must not be used
// again while packets of the connection may live, and that a late datagram is
// recognised by: our communication ID, and the peer's queue pair. That is 32
// bytes and a place in two sets, in place of a [Conn] and its owner.
//
// A late datagram is answered as it was in TIMEWAIT: a DREQ with a DREP, a REQ
// or REP for the queue pair with a REJ (stale connection).
type timewait struct {
	order []residue // from first on, in the order in which they were put
	first int
	ids   map[uint32]struct{}
	qps   map[remoteQP]struct{}
}

// residue is what is left of one connection.
type residue struct {
	until time.Duration
	peer  remoteQP
	local uint32
}

// put adds a connection.
func (t *timewait) put(r residue) {
	if t.ids == nil {
		t.ids, t.qps = map[uint32]struct{}{}, map[remoteQP]struct{}{}
	}
	t.order = append(t.order, r)
	t.ids[r.local] = struct{}{}
	t.qps[r.peer] = struct{}{}
}

// expire forgets those whose time is over. One that was put behind another stays
// as long as that one: never longer than TimeWait from when it was put.
func (t *timewait) expire(now time.Duration) {
	for t.first < len(t.order) && t.order[t.first].until <= now {
		r := &t.order[t.first]
		delete(t.ids, r.local)
		delete(t.qps, r.peer)
		t.first++
	}
	switch {
	case t.first == len(t.order):
		*t = timewait{} // a map that is emptied keeps its memory
	case 2*t.first >= len(t.order):
		t.order = append(t.order[:0], t.order[t.first:]...)
		t.first = 0
	}
}

// next is when expire has something to do; 0 when never.
func (t *timewait) next() time.Duration {
	if t.len() == 0 {
		return 0
	}
	return t.order[t.first].until
}

func (t *timewait) len() int { return len(t.order) - t.first }

// hasID reports whether a communication ID of ours is in TIMEWAIT.
func (t *timewait) hasID(local uint32) bool {
	_, ok := t.ids[local]
	return ok
}

// hasQP reports whether a queue pair of a peer's is in TIMEWAIT.
func (t *timewait) hasQP(gid verbs.GID, qpn uint32) bool {
	_, ok := t.qps[remoteQP{gid, qpn}]
	return ok
}

// shrink leaves the numbers of a connection in TIMEWAIT that its owner has
// closed, and removes the connection.
func (c *Conn) shrink() {
	r := residue{until: c.deadline, peer: remoteQP{c.peer, c.rqpn}, local: c.local}
	c.forget()
	c.m.timewait.put(r)
}
