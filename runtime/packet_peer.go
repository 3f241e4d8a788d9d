package runtime

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Peer is a destination to which one [PacketConn] sends datagrams: the queue pair of another
// PacketConn, or a multicast group. A Peer is valid until it is closed or the sending PacketConn
// has ended. Methods may be called from any goroutine.
//
// Implements: struct ibv_ah, together with the number and the Q_Key of the destination queue pair.
type Peer struct {
	p     *PacketConn
	ah    verbs.AH
	qpn   uint32
	qkey  uint32
	group *membership // of the multicast group; nil if the Peer is none

	// outstanding is the number of datagrams for which the device may still use the address handle.
	// Send increments outstanding. When the datagram completes, the holder of the turn (the
	// goroutine that runs the reactor) decrements it. If Send cannot submit the datagram, Send
	// decrements it. Close changes outstanding from 0 to peerClosed. If Close then cannot destroy
	// the address handle, it sets outstanding back to 0.
	outstanding atomic.Int64
}

const peerClosed = -1 // the value of Peer.outstanding when the Peer is closed

// newPeer creates an address handle and its Peer. On RoCE, CreateAH makes the kernel look up the
// hardware address of the peer. The lookup takes up to a second if no machine has the peer's
// address, for example if the source address of a datagram is forged. The holder of the turn must
// not wait that long for peerMu, so newPeer does not hold peerMu during CreateAH.
func (p *PacketConn) newPeer(a *verbs.AHAttr, qpn, qkey uint32, group *membership) (*Peer, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := p.rt.enter(); err != nil { // Runtime.Close waits for leave() before it closes the protection domain
		return nil, err
	}
	defer p.rt.leave()
	if a.DGID != (verbs.GID{}) && a.TrafficClass == 0 {
		a.TrafficClass = p.opts.TOS
	}
	ah, err := p.rt.pd.CreateAH(a)
	if err != nil {
		return nil, err
	}
	e := &Peer{p: p, ah: ah, qpn: qpn, qkey: qkey, group: group}
	p.peerMu.Lock()
	defer p.peerMu.Unlock()
	if err := p.Err(); err != nil { // p has ended: closePeers may have run already, so close the address handle here
		return nil, errors.Join(err, giveBack(ah))
	}
	p.peers[e] = struct{}{}
	return e, nil
}

// giveBack closes the object o. If the first try fails, giveBack tries again, because no other code
// closes o later.
func giveBack(o verbs.Object) error {
	err := o.Close()
	if err != nil {
		err = errors.Join(err, o.Close())
	}
	return err
}

// PeerOf returns the sender of k as a Peer, so that p can reply. The source address of the reply is
// the address to which k was sent. If k was sent to a multicast group, the source address is the
// choice of verbs.ChooseGID. PeerOf may be called beside Release of k, from any goroutine. A datagram within a subnet of InfiniBand has no GRH: then LIDs are the addresses. On a real device PeerOf makes system calls.
//
// Errors: ErrMessage after Release, or if another PacketConn received k; ErrInvalid if k has no GRH
// (except on InfiniBand) or a malformed one; ErrNoGID if the device no longer has the source address; the cause if p has
// ended; errors of the device.
//
// Implements: ibv_create_ah_from_wc.
func (p *PacketConn) PeerOf(k Packet) (*Peer, error) {
	s := k.slot
	if s == nil || s.p != p || s.state.Load() != k.number {
		return nil, ErrMessage
	}
	if err := p.rt.enter(); err != nil { // Runtime.Close waits for leave() before it closes the device
		return nil, err
	}
	defer p.rt.leave()
	var grh [verbs.GRHLen]byte
	copy(grh[:], s.buf.Bytes())
	// If k was released meanwhile, the copy may be of another datagram. The CAS changes nothing: unlike a load, it does
	// not let the processor read the buffer later.
	if !s.state.CompareAndSwap(k.number, k.number) {
		return nil, ErrMessage
	}
	a, err := p.replyTo(&k.from, grh[:])
	if err != nil {
		return nil, p.rt.asRemoved(err)
	}
	return p.newPeer(&a, k.from.srcQP, verbs.UDPQKey, nil)
}

// replyTo returns the address of the sender of a datagram. grh is its GRH, if it has one.
func (p *PacketConn) replyTo(f *packetFrom, grh []byte) (a verbs.AHAttr, err error) {
	if !f.grh {
		if !p.lids {
			return a, fmt.Errorf("%w: a datagram without a GRH", verbs.ErrInvalid)
		}
		return verbs.InitAHFromLID(f.slid, f.sl, f.bits, p.port)
	}
	from, err := p.replyFrom(grh)
	if err != nil {
		return a, err
	}
	if a, err = verbs.InitAHFromGRH(grh, p.port, from); err != nil {
		return a, err
	}
	a.DLID = f.slid
	if p.lids { // with a GRH, too
		a.SL, a.SrcPathBits = f.sl, f.bits
	}
	return a, nil
}

// replyFrom returns the GID table index of the source address of a reply (see PeerOf). The argument
// grh is the GRH of the received datagram. The GID table changes with the addresses of the network
// device, so replyFrom reads the table on every call.
func (p *PacketConn) replyFrom(grh []byte) (uint8, error) {
	dest, v2, err := verbs.GRHDest(grh)
	if err != nil {
		return 0, err
	}
	if !dest.Unicast() {
		e, err := verbs.ChooseGID(p.rt.dev, p.port)
		return uint8(e.Index), err
	}
	e, err := verbs.FindGID(p.rt.dev, p.port, dest, v2)
	return uint8(e.Index), err // the entries below 256 are read only
}

// disposePeer closes the Peer of a future that was discarded.
func disposePeer(e *Peer, err error) {
	if err == nil {
		_ = e.Close() // cannot fail with ErrBusy: nothing was sent to the peer
	}
}

// Close destroys the address handle. If the Peer is a multicast group, Close also leaves the group.
// While datagrams to the Peer are outstanding, Close returns ErrBusy and changes nothing. Close is
// idempotent.
//
// Implements: ibv_destroy_ah.
func (e *Peer) Close() error {
	e.p.peerMu.Lock()
	defer e.p.peerMu.Unlock()
	return e.close()
}

// Peer.close is Close for a caller that holds peerMu.
func (e *Peer) close() error {
	if !e.outstanding.CompareAndSwap(0, peerClosed) {
		if n := e.outstanding.Load(); n > 0 {
			return fmt.Errorf("%w: %d datagrams to the peer are outstanding", verbs.ErrBusy, n)
		}
		return nil
	}
	if err := e.ah.Close(); err != nil {
		e.outstanding.Store(0)
		return err
	}
	delete(e.p.peers, e)
	if e.group != nil {
		e.p.sh.r.Defer(e.group.leave)
	}
	return nil
}

// closePeers closes all peers to which no datagram is outstanding. If datagrams to other peers are
// outstanding, closePeers returns true, and must be called again.
func (p *PacketConn) closePeers() (busy bool, err error) {
	p.peerMu.Lock()
	defer p.peerMu.Unlock()
	for e := range p.peers {
		if cerr := e.close(); errors.Is(cerr, verbs.ErrBusy) {
			busy = true
		} else {
			err = errors.Join(err, cerr)
		}
	}
	return busy, err
}
