package soft

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// QueryGIDEntry returns an entry of the port's address table as QueryPort has found it; verbs.ErrNoGID for
// an empty one. It does not block.
//
// Implements: ibv_query_gid_ex.
func (c *deviceContext) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	g, err := c.QueryGID(port, index)
	if err == nil && g == (verbs.GID{}) {
		err = opError("ibv_query_gid_ex", c.String(), syscall.EINVAL, "%w: entry %d is empty", verbs.ErrNoGID, index)
	}
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	return verbs.GIDEntry{GID: g, Index: index, Port: port, Type: verbs.GIDRoCEv2}, nil
}

// QueryGIDTable finds the addresses anew, as QueryPort does, and returns the port's address table. It does not block.
//
// Implements: ibv_query_gid_table.
func (c *deviceContext) QueryGIDTable() ([]verbs.GIDEntry, error) {
	if err := c.checkPresent("ibv_query_gid_table"); err != nil {
		return nil, err
	}
	c.dev.findGIDs()
	table := []verbs.GIDEntry{}
	for i := range c.dev.gids.len() {
		if g := c.dev.gids.at(i); g != (verbs.GID{}) {
			table = append(table, verbs.GIDEntry{GID: g, Index: i, Port: portNumber, Type: verbs.GIDRoCEv2})
		}
	}
	return table, nil
}

// QueryPKey returns the port's only partition key. It does not block.
//
// Implements: ibv_query_pkey.
func (c *deviceContext) QueryPKey(port uint8, index int) (uint16, error) {
	if port != portNumber || index != 0 {
		return 0, opError("ibv_query_pkey", c.String(), syscall.EINVAL, "%w: entry %d of port %d, there is only entry 0 of port %d", verbs.ErrInvalid, index, port, portNumber)
	}
	return wire.DefaultPKey, c.checkPresent("ibv_query_pkey")
}

// InitAttr returns the attributes of the queue pair's creation. It does not block.
//
// Implements: ibv_query_qp, its init_attr.
func (q *queuePair) InitAttr() verbs.QPInitAttr {
	a := verbs.QPInitAttr{SendCQ: q.sendCQ, Cap: q.granted, Type: q.Type(), SQSigAll: q.sigAll, UserData: q.userData}
	if q.recvCQ != nil {
		a.RecvCQ = q.recvCQ
	}
	if q.srq != nil {
		a.SRQ = q.srq
	}
	return a
}
