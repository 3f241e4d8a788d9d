package roce

import (
	"errors"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// txBatch is the datagrams of one system call, all of one socket. All belongs to the link's runner.
type txBatch struct {
	end  *End
	n    int            // filled
	sent int            // of them, sent
	next *fabric.Packet // to be added to the next batch; nil: none
	outs [udp.MaxBatch]udp.Out
	// room holds the datagrams one after the other, and used is how much of it they take. Made by the first take.
	room []byte
	used int
}

// batchLen is the length in bytes with which a batch is full, about what the system joins. A longer batch would
// leave the processor's cache before the system has copied it. No UDP datagram is longer.
const batchLen = 64 << 10

// take returns the next n bytes of the room, at most batchLen. The batch is not full.
func (t *txBatch) take(n int) []byte {
	if t.room == nil {
		t.room = make([]byte, 2*batchLen)
	}
	t.used += n
	return t.room[t.used-n : t.used]
}

// full reports whether the batch has no room for another datagram.
func (t *txBatch) full() bool { return t.n == udp.MaxBatch || t.used >= batchLen }

// transmit sends the packets in the inbox. It returns false if a send buffer is full: the rest
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
			if l.tx.full() {
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
	if k.Stranger && e.aside != nil {
		return e.aside
	}
	return e
}

// add encodes k and adds it to the batch, which has room, or drops it. The payload is copied once, before its CRC
// is made: memory may change at any time, by the program or by a peer, and a packet of two states would be lost.
func (l *Link) add(k *fabric.Packet) {
	t := &l.tx
	pad := int(wire.PadLen(k.PayloadLen))
	n := k.HdrLen + k.PayloadLen + pad + ICRCLen
	if n > batchLen { // than UDP carries
		l.stats.Unsent++
		l.stats.TooLong++
		l.up.Return(k)
		return
	}
	guard, guarded := k.Holder.(fabric.Guard)
	if guarded && !guard.Enter() { // the memory was taken back
		l.up.Return(k)
		return
	}
	b := t.take(n)
	at := copy(b, k.Header())
	there := true
	for _, p := range k.Payload {
		if !k.Foreign {
			at += copy(b[at:], p)
		} else if _, there = mem.Copy(b[at:], p); there {
			at += len(p)
		} else {
			break
		}
	}
	if guarded {
		guard.Leave()
	}
	if !there { // the sender meets the fault when it sends the packet again
		t.used -= n
		l.up.Return(k)
		return
	}
	clear(b[at : at+pad])
	o := &t.outs[t.n]
	o.TOS, o.Data = k.Net.TrafficClass, b
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
	putICRC(b[at+pad:], c.Sum(b))
	t.n++
	l.up.Return(k)
}

// flush sends the batch. It returns false if the send buffer of its socket is full: the link then waits, so that a
// network card's queue slows the senders down and loses nothing. But datagrams to an address without a machine stay in the
// send buffer for seconds, until the system gives up looking for the address. So if the buffer is full for maxFull, what
// it cannot hold is lost until something was sent, and other sockets go on. What an aside cannot hold is lost at once.
func (l *Link) flush() bool {
	t := &l.tx
	for t.sent < t.n {
		n, err := t.end.sock.Send(t.outs[t.sent:t.n])
		l.stats.Sent += uint64(n)
		t.end.passed()
		t.sent += n
		if n > 0 {
			t.end.full = 0
		}
		switch {
		case err != nil: // of one datagram; the network may lose any
			l.stats.Unsent++
			if errors.Is(err, udp.ErrTooLong) {
				l.stats.TooLong++
			}
			t.sent++
		case n == 0 && t.end.isAside():
			l.asideFull(t.end)
			l.stats.Unsent += uint64(t.n - t.sent)
			t.sent = t.n
		case n == 0:
			if t.end.full == 0 {
				t.end.full = l.now + maxFull
			}
			if l.now < t.end.full {
				return false
			}
			l.stats.Unsent += uint64(t.n - t.sent)
			t.sent = t.n
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

// drop empties the batch.
func (t *txBatch) drop() {
	t.n, t.sent, t.used = 0, 0, 0
}
