package soft

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// pace bounds the packets of an unreliable queue pair that are on their way.
// Nobody acknowledges them, so a sender faster than its receivers would fill the
// link's share with copies of its payload, and a group's members lose what does
// not fit; a wire would hold it back. (rdma_rxe counts its socket buffers for the same reason:
// RXE_INFLIGHT_SKBS_PER_QP_HIGH.)
//
//	            out = paceHigh                 out <= paceLow
//	sending ──────────────────────> held ──────────────────────> sending
//	          the engine leaves the           whoever consumed
//	          rest for later                  rings the bell
//
// It is the holder of those packets. What a fault script delays or duplicates
// is the link's and does not count.
type pace struct {
	q *queuePair
	// out counts packets sent and not consumed. Raised by the engine, lowered by
	// whoever consumes; for a multicast the consumer may be first, so that it
	// may be negative for a moment. It publishes nothing.
	out atomic.Int64
	// held says that the engine waits for a bell. Set by the engine, which looks
	// at out again afterwards; cleared by whoever sees both, who then rings (or,
	// if it is the engine, goes on). A consumer lowers out before it reads held:
	// one of the two sees the other.
	held atomic.Bool
}

// The marks of pace. The distance makes a bell rare; the upper one, times the
// largest packet (see maxUC), is what a queue pair may fill of memory: 4 MiB.
const (
	paceHigh = 128
	paceLow  = 32
)

var _ fabric.Holder = (*pace)(nil)

// PacketDone is told by the fabric that a packet was consumed.
func (p *pace) PacketDone(*fabric.Packet) {
	if p.out.Add(-1) > paceLow || !p.held.Load() || !p.held.CompareAndSwap(true, false) {
		return
	}
	p.q.ringDoorbell()
	if port := p.q.dev.port.Load(); port != nil {
		port.Wake()
	}
}

// full tells the engine to send no more: a bell will come.
func (p *pace) full() bool {
	if p.out.Load() < paceHigh {
		return false
	}
	p.held.Store(true)
	return p.out.Load() > paceLow || !p.held.CompareAndSwap(true, false)
}
