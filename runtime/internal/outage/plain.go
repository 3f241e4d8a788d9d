package outage

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// plainSeed is the seed of the data of connections without a connection manager. They have no
// greeting that could carry a seed.
const plainSeed = 0x9a1a

// plainKeepAlive is the longest silence before the peer is probed.
const plainKeepAlive = 2 * time.Second

// plainLimits are the bounds of connections without a connection manager. The zero value of
// bootstrap.Path gives timeout code 14 and 7 retries. The device then gives up after 4 × 4.096 µs ×
// 2^14 × 8 = 2.1 s, so the configured peer timeout decides. One eighth is added for the tick of the
// watchdog.
var plainLimits = Limits{
	Op:   verbena.DefaultPeerTimeout * 9 / 8,
	Recv: plainKeepAlive + verbena.DefaultPeerTimeout*9/8,
}

func plainOptions() verbena.PlainOptions {
	return verbena.PlainOptions{Options: verbena.Options{KeepAlive: plainKeepAlive}}
}

// servePlain serves connections without a connection manager.
func (p *Peer) servePlain() error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(p.cfg.Plain))
	if err != nil {
		return fmt.Errorf("listening for plain connections: %w", err)
	}
	p.plain = l
	p.all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil { // closed by hangUp
				return
			}
			p.all.Go(func() { p.acceptPlain(nc) })
		}
	})
	return nil
}

// acceptPlain serves one connection without a connection manager.
func (p *Peer) acceptPlain(nc net.Conn) {
	defer nc.Close()
	op := p.ledger.begin(KindAccept, p.cfg.Runtime.ConnectTimeout)
	var c *verbena.Conn
	prepared, err := p.rt.Prepare(plainOptions())
	if err == nil {
		c, err = prepared.Accept(p.run, nc)
	}
	if p.ledger.end(op, err) != nil {
		p.over(err)
		return
	}
	life := p.ledger.begin(KindConn, plainLimits.Recv)
	var work sync.WaitGroup
	defer work.Wait()
	defer p.hold(c, life)
	s := &session{p: p, c: c, seed: plainSeed, limits: plainLimits}
	work.Go(s.answerRaw)
}

// dialPlain makes a connection without a connection manager.
func (p *Peer) dialPlain() (*verbena.Conn, error) {
	op := p.ledger.begin(KindDial, p.cfg.Runtime.ConnectTimeout)
	c, err := p.rt.DialPlain(p.run, p.cfg.DialPlain.String(), plainOptions())
	var refused net.Error
	if errors.As(err, &refused) {
		err = fmt.Errorf("%w: %w", verbena.ErrUnreachable, err)
	}
	return c, p.ledger.end(op, err)
}
