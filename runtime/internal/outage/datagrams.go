package outage

import (
	"encoding/binary"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// A datagram consists of one byte with its type, seven unused bytes, and a message of 64 bytes. It
// fits into every path MTU.
const (
	datagramAsk    = 1
	datagramAnswer = 2
	datagramHead   = 8
	datagramBody   = 64
)

// datagramEvery is the time between two datagrams. It is long, because a few datagrams suffice.
const datagramEvery = 10 * time.Millisecond

// takeDatagrams receives datagrams until the connection fails. It checks all of them and answers
// those of type datagramAsk. Datagrams may be lost, duplicated and reordered, but not damaged.
func (p *Peer) takeDatagrams() {
	for {
		k, err := p.packet.RecvWait(bg)
		if err != nil {
			p.over(err)
			if Classify(err) == ClassUnknown {
				p.ledger.wrong("receiving datagrams: %v", err)
			}
			return
		}
		p.takeDatagram(k)
		if err := k.Release(); err != nil {
			p.ledger.wrong("releasing a datagram: %v", err)
		}
	}
}

func (p *Peer) takeDatagram(k verbena.Packet) {
	if len(k.Data) != datagramHead+datagramBody || k.Data[0] != datagramAsk && k.Data[0] != datagramAnswer {
		p.ledger.wrong("a datagram of %d bytes: %x", len(k.Data), k.Data[:min(len(k.Data), datagramHead)])
		return
	}
	body := k.Data[datagramHead:]
	n := binary.LittleEndian.Uint64(body)
	if err := check(body[messageHead:], 0, n); err != nil {
		p.ledger.wrong("datagram: %v", err)
	}
	if k.Data[0] == datagramAnswer {
		return
	}
	to, err := p.packet.PeerOf(k)
	if err != nil {
		if Classify(err) == ClassUnknown && p.run.Err() == nil {
			p.ledger.wrong("whose datagram: %v", err)
		}
		return
	}
	_ = p.sendDatagram(to, datagramAnswer, n) // the error is recorded in the ledger
	if err := to.Close(); err != nil && Classify(err) == ClassUnknown {
		p.ledger.wrong("closing an address: %v", err)
	}
}

// sendDatagrams sends datagrams of type datagramAsk to the peer until its rounds are done or the
// load ends.
func (p *Peer) sendDatagrams() {
	for n := uint64(0); p.run.Err() == nil && (p.cfg.Work == 0 || n < uint64(p.cfg.Work)); {
		op := p.ledger.begin(KindResolve, p.cfg.Runtime.ConnectTimeout)
		to, err := p.packet.Resolve(p.run, port(p.cfg.Dial, packetPort).String())
		if p.ledger.end(op, err) != nil {
			if p.over(err) || p.packet.Err() != nil {
				return
			}
			pauseFor(p.run, dialPause)
			continue
		}
		for ; p.run.Err() == nil && (p.cfg.Work == 0 || n < uint64(p.cfg.Work)); n++ {
			if p.sendDatagram(to, datagramAsk, n) != nil {
				return
			}
			pauseFor(p.run, datagramEvery)
		}
		if err := to.Close(); err != nil && Classify(err) == ClassUnknown {
			p.ledger.wrong("closing an address: %v", err)
		}
	}
}

// sendDatagram sends one datagram of type what and waits for its completion.
func (p *Peer) sendDatagram(to *verbena.Peer, what byte, n uint64) error {
	b, err := p.rt.Alloc(datagramHead + datagramBody)
	if err != nil {
		p.over(err)
		return err
	}
	d := b.Bytes()
	clear(d[:datagramHead])
	d[0] = what
	binary.LittleEndian.PutUint64(d[datagramHead:], n)
	fill(d[datagramHead+messageHead:], 0, n)
	op := p.ledger.begin(KindDatagram, p.cfg.Bounds.Op)
	f, err := p.packet.Send(bg, to, b.Slice())
	if err == nil {
		_, err = f.Await(bg)
	}
	err = p.ledger.end(op, err)
	if rerr := b.Release(); rerr != nil {
		p.ledger.wrong("releasing a datagram's buffer: %v", rerr)
	}
	return err
}
