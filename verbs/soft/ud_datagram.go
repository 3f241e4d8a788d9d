package soft

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// ownQKey is the bit of a request's queue key that selects the key of the sending queue pair,
// which a program without privilege may not choose there (IBTA volume 1, 10.2.5).
const ownQKey = 1 << 31

// transmitTo sends a datagram of request w.
func (q *queuePair) transmitTo(ah *addressHandle, k *fabric.Packet, h *wire.Header, w *sendWQE) {
	h.QKey, h.SrcQP = w.rkey, q.number
	if h.QKey&ownQKey != 0 {
		h.QKey = q.attr.QKey
	}
	h.PKey, h.DestQP, h.MigReq = wire.DefaultPKey, uint32(w.arg1), true
	k.SetHeader(h)
	k.Net = ah.net
	if ah.group != nil {
		// PacketDone is called once for each copy, and once if there is none.
		q.pace.out.Add(int64(max(q.dev.p.SendGroup(ah.group, k), 1)))
		return
	}
	q.pace.out.Add(1)
	q.dev.p.SendTo(ah.route, k)
}

// receiveDatagram handles a datagram: for the device itself, for a queue pair, or for all queue
// pairs attached to its group. In a group each queue pair gets a copy of its own, including the
// sender if it is attached. rxe_rcv_mcast_pkt does the same, and so do adapters unless
// IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK is set.
func (d *device) receiveDatagram(k *fabric.Packet, h *wire.Header) {
	if h.DestQP == verbs.McastQPN {
		if g := d.groups[k.Dst]; g != nil {
			for _, q := range g.qps {
				q.onDatagram(k, h)
			}
			return
		}
	} else if k.Dst == d.gid { // datagrams to a group always use McastQPN
		if h.DestQP == gsiQP {
			d.receiveMAD(k, h)
			return
		}
		if q := d.find(h.DestQP); q != nil {
			q.onDatagram(k, h)
			return
		}
	}
	d.counters.NoQueuePair++
}

// onDatagram copies a datagram into the receive at the head of the queue: the network header into
// its first 40 bytes, the payload after it. A datagram that cannot be delivered (wrong key, no
// receive, a receive too short) is dropped without an error on either side, and takes no receive
// (class D, rxe_resp.c).
//
// Implements: IBTA volume 1, 9.8.3 (unreliable datagram), the responder's side.
func (q *queuePair) onDatagram(k *fabric.Packet, h *wire.Header) {
	c := &q.dev.counters
	if !q.takes(h) || !q.listens() {
		c.NoQueuePair++
		return
	}
	if h.QKey != q.attr.QKey {
		c.QKeyViolations++
		return
	}
	n := uint64(grhLen + k.PayloadLen)
	v, ok := q.nextRecv()
	switch {
	case uint64(k.PayloadLen) > uint64(q.mtu):
		c.Invalid++
		return
	case !ok:
		c.NoReceive++
		return
	case n > v.size():
		c.TooLong++
		return
	}
	if !q.dev.enterGuard(k) {
		return // lost
	}
	x := &q.dev.scratch
	networkHeader(&x.grh, k)
	x.grhSegs[0] = x.grh[:]
	err := q.dev.scatter(v.pd, v.sges(), 0, x.grhSegs[:], false)
	if err == nil {
		err = q.dev.scatter(v.pd, v.sges(), grhLen, k.Payload, false)
	}
	if err != nil {
		q.failRecv()
		return
	}
	q.hold(v)
	wc := q.completeRecv(h, verbs.WCRecv, uint32(n))
	wc.SrcQP, wc.PKeyIndex = h.SrcQP, q.attr.PKeyIndex
	if k.Far != nil {
		wc.SLID = k.Far.PeerPort
	}
	wc.Flags |= verbs.WCWithGRH
}

// The first 40 bytes of a received datagram: on IPv6 the IP header, which has the position and
// the fields of a GRH; on IPv4 the IP header in the last 20 bytes, the first 20 zero.
//
// Implements: union rdma_network_hdr (ib_pack.h), as rxe_resp.c fills it; IBTA annex A17
// (RoCEv2), A17.4.5.
const (
	grhLen  = 40
	ipv4Len = 20
	ipv4At  = grhLen - ipv4Len
	udpLen  = 8
	icrcLen = 4

	ipv4VersionIHL   = 0x45
	ipv4DontFragment = 0x4000
	ipProtoUDP       = 17
	ipv6Version      = 6 << 28
	ipv6TClassShift  = 20
	ipv6FlowMask     = 1<<ipv6TClassShift - 1
)

// networkHeader writes the network header that the packet has on a RoCE v2 network.
func networkHeader(b *[grhLen]byte, k *fabric.Packet) {
	clear(b[:])
	be := binary.BigEndian
	behind := udpLen + k.HdrLen + k.PayloadLen + int(wire.PadLen(k.PayloadLen)) + icrcLen
	srcGID, dstGID := k.Src, k.Dst
	if k.Far != nil { // between processes the path has the addresses
		if srcGID = k.Far.Peer; k.Far.Local != (verbs.GID{}) {
			dstGID = k.Far.Local
		}
	}
	src, dst := srcGID.Addr(), dstGID.Addr()
	if !src.Is4() || !dst.Is4() {
		be.PutUint32(b[0:], ipv6Version|uint32(k.Net.TrafficClass)<<ipv6TClassShift|k.Net.FlowLabel&ipv6FlowMask)
		be.PutUint16(b[4:], uint16(behind))
		b[6], b[7] = ipProtoUDP, k.Net.HopLimit
		copy(b[8:], srcGID[:])
		copy(b[24:], dstGID[:])
		return
	}
	h := b[ipv4At:]
	h[0], h[1] = ipv4VersionIHL, k.Net.TrafficClass
	be.PutUint16(h[2:], uint16(ipv4Len+behind))
	be.PutUint16(h[6:], ipv4DontFragment)
	h[8], h[9] = k.Net.HopLimit, ipProtoUDP
	s, t := src.As4(), dst.As4()
	copy(h[12:], s[:])
	copy(h[16:], t[:])
	be.PutUint16(h[10:], checksum(h))
}

// checksum returns the internet checksum of a header whose checksum field is 0.
func checksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
