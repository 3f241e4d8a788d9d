package soft

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// pace bounds the packets in flight of an unreliable queue pair. They are not acknowledged, so a
// sender faster than its receivers would fill the link's share with copies of its payload, and a
// group's members would lose packets; a real link would slow it down. (rdma_rxe counts its socket
// buffers for the same reason: RXE_INFLIGHT_SKBS_PER_QP_HIGH.)
//
//	            out = paceHigh                 out <= paceLow
//	sending ──────────────────────> held ──────────────────────> sending
//	          the engine leaves the           the consumer rings
//	          rest for later                  the doorbell
//
// It is the holder of those packets. Packets that a fault script delays or duplicates belong to
// the link and do not count.
type pace struct {
	q *queuePair
	// out counts packets sent and not consumed. The engine raises it, the consumer lowers it; for
	// a multicast the consumer may be first, so that it may be negative for a moment. It
	// publishes nothing.
	out atomic.Int64
	// held is set while the engine waits for a doorbell. The engine sets it and reads out again
	// afterwards. The goroutine that clears it rings the doorbell or, if it is the engine,
	// continues. A consumer lowers out before it reads held: one of the two sees the other.
	held atomic.Bool
}

// The limits of pace. Their distance makes doorbells rare; the upper one, times the largest
// packet (see maxUC), is the memory that a queue pair may fill: 4 MiB.
const (
	paceHigh = 128
	paceLow  = 32
)

var _ fabric.Holder = (*pace)(nil)

// PacketDone is called by the fabric when a packet was consumed.
func (p *pace) PacketDone(*fabric.Packet) {
	if p.out.Add(-1) > paceLow || !p.held.Load() || !p.held.CompareAndSwap(true, false) {
		return
	}
	p.q.ringDoorbell()
	if port := p.q.dev.port.Load(); port != nil {
		port.Wake()
	}
}

// full reports whether the engine must stop sending: a doorbell will follow.
func (p *pace) full() bool {
	if p.out.Load() < paceHigh {
		return false
	}
	p.held.Store(true)
	return p.out.Load() > paceLow || !p.held.CompareAndSwap(true, false)
}
