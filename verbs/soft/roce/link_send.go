package roce

import (
	"errors"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// tailLen is the longest end of a datagram behind the payload: padding and ICRC, in bytes.
const tailLen = 3 + ICRCLen

// usualParts is the number of parts for which a datagram of the batch has room from the beginning.
const usualParts = 4

// txBatch is the datagrams of one system call, all of one socket. The parts of each are its headers, the payload where
// it lies, and the tail. All belongs to the link's runner.
type txBatch struct {
	end     *End
	n       int            // filled
	sent    int            // of them, sent
	next    *fabric.Packet // to be added to the next batch; nil: none
	packets [udp.MaxBatch]*fabric.Packet
	outs    [udp.MaxBatch]udp.Out
	tails   [udp.MaxBatch][tailLen]byte
	guards  []fabric.Guard // entered for packets not sent yet
	waiting bool           // for the send buffer, and no guard is entered
}

// transmit sends the packets in the inbox. It returns false if the send buffer is full: the rest
// waits.
func (l *Link) transmit() bool {
	for {
		if l.tx.sent < l.tx.n && !l.flush() {
			return false
		}
		k := l.tx.next
		if l.tx.next = nil; k == nil {
			k = l.up.Take()
		}
		if k == nil {
			return true
		}
		for ; k != nil; k = l.up.Take() {
			e := l.endOf(k)
			if e == nil {
				l.stats.Unsent++
				l.up.Return(k)
				continue
			}
			if e != l.tx.end && l.tx.n > 0 && !l.flush() {
				l.tx.next = k
				return false
			}
			l.tx.end = e
			l.add(k)
			if l.tx.n == udp.MaxBatch {
				break
			}
		}
	}
}

// endOf returns the socket that sends k, nil if there is none or k is for the other family.
func (l *Link) endOf(k *fabric.Packet) *End {
	var e *End
	if k.Far != nil {
		if e = l.tx.end; e == nil || e.main == nil || e.path != *k.Far {
			e = l.end(k.Far)
		}
	} else if ends := *l.ends.Load(); len(ends) > 0 {
		e = ends[0]
	}
	if e == nil || !e.reaches(k.Dst.Addr()) {
		return nil
	}
	return e
}

// add encodes k and adds it to the batch, which has room, or drops it.
func (l *Link) add(k *fabric.Packet) {
	t := &l.tx
	if g, ok := k.Holder.(fabric.Guard); ok && !t.enter(g) {
		l.up.Return(k)
		return
	}
	o := &t.outs[t.n]
	o.TOS = k.Net.TrafficClass
	c := &l.cover
	if f := k.Far; f != nil {
		o.To, o.From = netip.AddrPortFrom(f.Peer.Addr(), f.PeerPort), netip.Addr{}
		if f.Local != (verbs.GID{}) {
			o.From = f.Local.Addr()
		}
	} else {
		o.To = netip.AddrPortFrom(k.Dst.Addr(), Port)
		c.Src, c.Dst = t.end.sock.Local(), o.To
	}
	pad := int(wire.PadLen(k.PayloadLen))
	tail := &t.tails[t.n]
	*tail = [tailLen]byte{}
	crc := c.Sum(k.Header(), k.Payload, tail[:pad], k.HdrLen+k.PayloadLen+pad+ICRCLen)
	putICRC(tail[pad:], crc)
	o.Parts = append(o.Parts[:0], k.Header())
	o.Parts = append(o.Parts, k.Payload...)
	o.Parts = append(o.Parts, tail[:pad+ICRCLen])
	t.packets[t.n] = k
	t.n++
}

// enter enters g until the batch is sent. It returns false if the memory was taken back.
func (t *txBatch) enter(g fabric.Guard) bool {
	if n := len(t.guards); n > 0 && t.guards[n-1] == g {
		return true
	}
	if !g.Enter() {
		return false
	}
	t.guards = append(t.guards, g)
	return true
}

// flush sends the batch. It returns false if the send buffer is full.
func (l *Link) flush() bool {
	t := &l.tx
	if t.waiting && !t.resume() { // rare: the rest is lost, as in the network
		l.stats.Unsent += uint64(t.n - t.sent)
		t.drop()
		return true
	}
	for t.sent < t.n {
		n, err := t.end.sock.Send(t.outs[t.sent:t.n])
		l.stats.Sent += uint64(n)
		t.end.passed()
		t.sent += n
		switch {
		case err != nil: // of one datagram; the network may lose any
			l.stats.Unsent++
			if errors.Is(err, udp.ErrTooLong) {
				l.stats.TooLong++
			}
			t.sent++
		case n == 0:
			t.wait()
			return false
		}
	}
	t.drop()
	return true
}

// forget drops what waits for the send buffer of e.
func (t *txBatch) forget(e *End) {
	if t.end != e {
		return
	}
	t.drop()
	t.end = nil
}

// drop ends the batch: it gives the packets back and leaves the guards.
func (t *txBatch) drop() {
	t.leave()
	for i := range t.n {
		t.packets[i].Release()
		t.packets[i] = nil
		clear(t.outs[i].Parts)
	}
	t.n, t.sent, t.waiting = 0, 0, false
}

// leave leaves the guards.
func (t *txBatch) leave() {
	for i, g := range t.guards {
		g.Leave()
		t.guards[i] = nil
	}
	t.guards = t.guards[:0]
}

// wait leaves the guards while the batch waits for the send buffer: an owner may take its memory back.
func (t *txBatch) wait() {
	t.leave()
	t.waiting = true
}

// resume enters the guards again after wait. It returns false if memory was taken back.
func (t *txBatch) resume() bool {
	t.waiting = false
	for _, k := range t.packets[t.sent:t.n] {
		if g, ok := k.Holder.(fabric.Guard); ok && !t.enter(g) {
			return false
		}
	}
	return true
}
