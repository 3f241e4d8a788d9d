package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// workUnreliable is work for a queue pair without acknowledgements.
func (q *queuePair) workUnreliable(verbs.QPState) {}

// onUnreliable takes a packet for a queue pair without acknowledgements.
func (q *queuePair) onUnreliable(*fabric.Packet, *wire.Header) {}
