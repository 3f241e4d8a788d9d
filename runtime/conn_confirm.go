package runtime

import "github.com/verbena-rdma/verbena/verbs"

// An accepting connection is established when the last message of the handshake arrives. If that message
// is lost, the kernel asks for it again after 4.3 s. Data of the peer may arrive before. Some devices then
// report COMM_EST, perhaps for each connection, and the connection manager has to be told
// (rdma_notify(3)): the connection is established at once.

// tellCommEst tells the connection manager that data has arrived at the queue pair qp, if its connection
// is not established. Only the first shard calls it, for all shards.
func (s *shard) tellCommEst(qp verbs.QP) {
	for _, sh := range s.rt.shards {
		sh.r.Defer(func() {
			if c := sh.unconfirmed[qp]; c != nil {
				c.whenAtRest(func() {
					if sh.unconfirmed[qp] == c {
						// If Notify fails, ESTABLISHED is under way (EISCONN), or the kernel asks for the message again.
						_ = c.id.(verbs.CMID).Notify(verbs.EventCommEst)
					}
				})
			}
		})
	}
}

// confirmed ends the wait for the last message of the handshake. Holder only.
func (c *Conn) confirmed() {
	if c.accepting && c.id != nil {
		delete(c.sh.unconfirmed, c.id.QP())
	}
}
