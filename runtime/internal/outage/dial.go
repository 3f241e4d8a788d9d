package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// dialPause is the pause before the next attempt after a connection has failed or could not be
// made. It is shorter than in a service, because tests wait for it.
const dialPause = 200 * time.Millisecond

// dialLoop dials the i-th connection of a role, and dials again when the connection has ended, until
// the load ends or the rounds of the connection are done.
func (p *Peer) dialLoop(role Role, i int) {
	name := fmt.Sprintf("%v %d", role, i)
	limits := p.limits(role)
	for p.run.Err() == nil {
		p.stages.set(name, "it dials")
		// It begins before the dial, so that Mark counts a connection from its beginning to its end.
		life := p.ledger.begin(KindConn, limits.Recv)
		c, g, err := p.dialRole(role)
		if err != nil {
			_ = p.ledger.end(life, nil)
			p.stages.set(name, "it has not connected: %v", err)
			if p.over(err) {
				return
			}
		} else {
			p.stages.set(name, "it works on the connection from %v", c.LocalAddr())
			switch p.connected.Add(1) {
			case p.wanted:
				p.say("connected")
			case 2 * p.wanted:
				p.say("connected again")
			}
			if p.useConn(c, g, life) {
				p.stages.set(name, "all rounds are done")
				return
			}
			p.stages.set(name, "its connection has ended: %v", c.Err())
		}
		pauseFor(p.run, dialPause)
	}
}

// dialRole makes one connection of a role, with or without a connection manager.
func (p *Peer) dialRole(role Role) (*verbena.Conn, greeting, error) {
	if role == RolePlain {
		c, err := p.dialPlain()
		return c, greeting{role: role, seed: plainSeed}, err
	}
	return p.dial(role)
}

// dial makes a connection with the connection manager and assigns it an area of the served region.
func (p *Peer) dial(role Role) (*verbena.Conn, greeting, error) {
	nth := p.nextArea.Add(1) - 1
	g := greeting{role: role, area: uint8(nth % areas), seed: mix(p.cfg.Seed + uint64(nth))}
	o, offset := verbena.Options{PrivateData: g.encode()}, uint16(managedPort)
	if role == RoleRaw {
		o.Raw, offset = true, rawPort
	}
	op := p.ledger.begin(KindDial, p.cfg.Runtime.ConnectTimeout)
	c, err := p.rt.DialOptions(p.run, port(p.cfg.Dial, offset).String(), o)
	return c, g, p.ledger.end(op, err)
}

// limits returns the bounds of the operations of a role.
func (p *Peer) limits(role Role) Limits {
	if role == RolePlain {
		return plainLimits
	}
	return p.cfg.Bounds
}

// useConn runs the workers of a connection until all rounds are done, and returns true, or until
// the connection has ended, and returns false. The argument life is that of hold.
func (p *Peer) useConn(c *verbena.Conn, g greeting, life uint64) (worked bool) {
	s := &session{p: p, c: c, g: g, seed: g.seed, limits: p.limits(g.role)}
	var mine verbena.Remote
	if g.role != RolePlain {
		mine = s.served()
	}
	// Each worker returns true after all rounds, or false when its connection fails or the load
	// ends.
	workers := map[Role][]func() bool{
		RoleEcho:   {s.echo},
		RoleNotify: {func() bool { return s.notify(mine) }},
		RoleMemory: {
			func() bool { return s.transfer(mine, 1) }, func() bool { return s.transfer(mine, 2) },
			func() bool { return s.count(mine) }, func() bool { return s.big(mine) },
		},
		RoleWindow: {s.open},
		RoleLone:   {func() bool { return true }},
		RoleRaw:    {s.raw},
		RolePlain:  {s.raw},
	}[g.role]
	var waiting, working sync.WaitGroup
	if g.role == RoleMemory || g.role == RoleLone {
		waiting.Go(s.waitForNothing)
	}
	worked = p.cfg.Work > 0
	results := make(chan bool, len(workers))
	for _, w := range workers {
		working.Go(func() { results <- w() })
	}
	ended := make(chan struct{})
	go func() { p.hold(c, life); close(ended) }()
	working.Wait()
	for range workers {
		worked = <-results && worked
	}
	if !worked {
		<-ended
		waiting.Wait()
		return false
	}
	// The connection stays open for a later outage; useConn does not wait for its end.
	p.all.Go(func() { <-ended; waiting.Wait() })
	return true
}

// served returns the area of the peer's region that only this connection uses.
func (s *session) served() verbena.Remote {
	var all verbena.Remote
	private := s.c.PrivateData()
	err := all.UnmarshalBinary(private[:min(len(private), verbena.RemoteSize)])
	mine, aerr := all.At(uint64(s.g.area)*area, area)
	if err = errors.Join(err, aerr); err != nil {
		s.p.ledger.wrong("the served region of %v: %v", s.c.RemoteAddr(), err)
	}
	return mine
}

// round reports whether the caller has to do round n.
func (s *session) round(n uint64) bool {
	return s.p.run.Err() == nil && (s.p.cfg.Work == 0 || n < uint64(s.p.cfg.Work))
}

// all reports whether n rounds are all rounds of a worker; without a limit it returns false.
func (s *session) all(n uint64) bool { return s.p.cfg.Work > 0 && n >= uint64(s.p.cfg.Work) }

// pauseFor waits for d, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
