package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Send sends the bytes of a slice as one datagram of at most MaxPacket bytes. It waits for room in
// the send queue until ctx ends. The future is settled when the datagram has left the device; the
// network may still lose the datagram. Until the future is settled, the device owns the memory of
// the slice.
//
// Errors: ErrTooLarge; ErrReleased; ErrClosed for a closed peer; ErrInvalid for a nil peer, a peer
// of another PacketConn, or memory of another runtime; the cause if p has ended (see Err); the
// error of the context.
//
// Implements: ibv_post_send, SEND on a UD queue pair.
func (p *PacketConn) Send(ctx context.Context, to *Peer, local Slice) (Future, error) {
	return p.send(ctx, to, local, reactor.Send{Opcode: verbs.WRSend})
}

// SendImm is Send with immediate data: the receiver gets imm in addition to the bytes.
//
// Implements: ibv_post_send, SEND_WITH_IMM on a UD queue pair.
func (p *PacketConn) SendImm(ctx context.Context, to *Peer, local Slice, imm uint32) (Future, error) {
	return p.send(ctx, to, local, reactor.Send{Opcode: verbs.WRSendWithImm, Imm: imm})
}

func (p *PacketConn) send(ctx context.Context, to *Peer, local Slice, s reactor.Send) (f Future, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return f, err
	}
	if err := p.Err(); err != nil {
		return f, err
	}
	if local.Len() > p.MaxPacket() {
		return f, fmt.Errorf("%w: %d bytes, one datagram carries %d", ErrTooLarge, local.Len(), p.MaxPacket())
	}
	if to == nil {
		return f, fmt.Errorf("%w: no peer to send to (Resolve, PeerOf and Join return peers)", verbs.ErrInvalid)
	}
	if to.p != p {
		return f, fmt.Errorf("%w: the peer belongs to another PacketConn", verbs.ErrInvalid)
	}
	if err := local.of(p.rt.mem); err != nil {
		return f, err
	}
	if err := local.begin(); err != nil {
		return f, err
	}
	if !to.begin() {
		local.lease.End()
		return f, fmt.Errorf("%w: the peer", verbs.ErrClosed)
	}
	l := packetLeases.Get().(*packetLease)
	l.to, l.local = to, local.lease
	s.Lease = l
	s.To = reactor.Dest{AH: to.ah, QPNum: to.qpn, QKey: to.qkey}
	var space [1]verbs.SGE
	payload := reactor.Payload{SGEs: space[:0]}
	if local.Len() > 0 {
		payload.SGEs = append(payload.SGEs, local.SGE())
	}
	if f, err = p.q.Submit(asked, &s, &payload, reactor.Block); err != nil {
		l.End()
		err = asked.Cause(ctx, err)
	}
	return f, err
}

// Peer.begin counts one more outstanding datagram to the peer. If the peer is closed, begin returns
// false.
func (e *Peer) begin() bool {
	for {
		n := e.outstanding.Load()
		if n == peerClosed {
			return false
		}
		if e.outstanding.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// packetLease is the lease of an outstanding datagram: it keeps the memory and the address handle.
type packetLease struct {
	to    *Peer
	local *lease
}

var packetLeases = sync.Pool{New: func() any { return new(packetLease) }}

// End implements reactor.Lease.
func (l *packetLease) End() {
	to, local := l.to, l.local
	*l = packetLease{}
	packetLeases.Put(l)
	local.End()
	to.outstanding.Add(-1)
}
