package cm

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// timewait is the connections in TIMEWAIT that their owners have closed. Their end is not reported,
// so it keeps only the numbers that must not be reused while packets of the connection may live,
// and by which a late datagram is recognized: the local communication ID, and the peer's queue
// pair. That is 32 bytes and an entry in two sets, in place of a [Conn] and its owner.
//
// A late datagram gets the same answer as in TIMEWAIT: a DREQ a DREP, a REQ or REP for the queue
// pair a REJ (stale connection).
type timewait struct {
	order []residue // from index first on, in the order of put
	first int
	ids   map[uint32]struct{}
	qps   map[remoteQP]struct{}
}

// residue is the kept part of one connection.
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

// expire forgets the connections whose time is over. One that was put after another stays as long
// as that one: never longer than TimeWait from its put.
func (t *timewait) expire(now time.Duration) {
	for t.first < len(t.order) && t.order[t.first].until <= now {
		r := &t.order[t.first]
		delete(t.ids, r.local)
		delete(t.qps, r.peer)
		t.first++
	}
	switch {
	case t.first == len(t.order):
		*t = timewait{} // an emptied map keeps its memory
	case 2*t.first >= len(t.order):
		t.order = append(t.order[:0], t.order[t.first:]...)
		t.first = 0
	}
}

// next returns the time at which expire has something to do; 0 for never.
func (t *timewait) next() time.Duration {
	if t.len() == 0 {
		return 0
	}
	return t.order[t.first].until
}

func (t *timewait) len() int { return len(t.order) - t.first }

// hasID reports whether a local communication ID is in TIMEWAIT.
func (t *timewait) hasID(local uint32) bool {
	_, ok := t.ids[local]
	return ok
}

// hasQP reports whether a queue pair of a peer is in TIMEWAIT.
func (t *timewait) hasQP(peer wire.Path, qpn uint32) bool {
	_, ok := t.qps[remoteQP{peer, qpn}]
	return ok
}

// shrink replaces a connection in TIMEWAIT that its owner has closed by its numbers.
func (c *Conn) shrink() {
	r := residue{until: c.deadline, peer: remoteQP{c.peer, c.rqpn}, local: c.local}
	c.forget()
	c.m.timewait.put(r)
}
