package outage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// servedAccess is the access of peers to the served region.
const servedAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// serve registers the served region and starts the listeners.
func (p *Peer) serve() (err error) {
	if p.memory, err = p.rt.NewRegion(areas*area, servedAccess); err != nil {
		return fmt.Errorf("the served region: %w", err)
	}
	remote, err := p.memory.Remote(0, areas*area)
	if err != nil {
		return err
	}
	private, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	for _, o := range []struct {
		offset uint16
		raw    bool
	}{{managedPort, false}, {rawPort, true}} {
		l, err := p.rt.ListenOptions(port(p.cfg.Serve, o.offset).String(), verbena.Options{Raw: o.raw, PrivateData: private})
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		p.listeners = append(p.listeners, l)
		p.all.Go(func() { p.acceptLoop(l) })
	}
	return nil
}

// acceptLoop accepts and serves connections until Accept fails.
func (p *Peer) acceptLoop(l *verbena.Listener) {
	name := fmt.Sprintf("listener %v", l.Addr())
	for {
		p.stages.set(name, "it accepts")
		op := p.ledger.begin(KindAccept, unbounded) // there may be no further connection
		c, err := l.Accept(p.run)
		if err = p.ledger.end(op, err); err != nil {
			p.stages.set(name, "it has failed: %v", err)
			p.over(err)
			return
		}
		p.all.Go(func() { p.serveConn(c) })
	}
}

// serveConn serves one connection by its role.
func (p *Peer) serveConn(c *verbena.Conn) {
	life := p.ledger.begin(KindConn, p.cfg.Bounds.Recv)
	var work sync.WaitGroup
	defer work.Wait()
	defer p.hold(c, life) // runs before work.Wait; closing the connection ends the work
	g, err := parseGreeting(c.PrivateData())
	if err != nil {
		p.ledger.wrong("a connection from %v: %v", c.RemoteAddr(), err)
		return
	}
	s := &session{p: p, c: c, g: g, seed: g.seed, limits: p.cfg.Bounds}
	work.Go(func() {
		switch g.role {
		case RoleEcho:
			s.answerMessages()
		case RoleNotify:
			s.answerWrites()
		case RoleWindow:
			s.writeWindows()
		case RoleRaw:
			s.answerRaw()
		default:
			s.waitForNothing()
		}
	})
}

// answerMessages echoes every message.
func (s *session) answerMessages() {
	for n := uint64(0); ; n++ {
		m, err := s.recv(KindRecv)
		if err != nil {
			return
		}
		if err := checkMessage(m.Data, s.seed, n); err != nil {
			s.p.ledger.wrong("served: %v", err)
		}
		err = s.sendBytes(m.Data)
		if err := errors.Join(err, m.Release()); err != nil {
			return
		}
	}
}

// answerWrites checks the data of each write with immediate, and answers with its number.
func (s *session) answerWrites() {
	mine := s.p.memory.Bytes()[int(s.g.area)*area:][slotAt : slotAt+slot]
	for n := uint64(0); ; n++ {
		m, err := s.recv(KindRecv)
		if err != nil {
			return
		}
		if !m.HasImm || m.Imm != uint32(n) || m.Written != slot {
			s.p.ledger.wrong("write %d came with immediate %d (%v) and %d bytes", n, m.Imm, m.HasImm, m.Written)
		}
		if err := check(mine, s.seed, n); err != nil {
			s.p.ledger.wrong("written with immediate: %v", err)
		}
		err = s.sendBytes(binary.LittleEndian.AppendUint64(nil, n))
		if err := errors.Join(err, m.Release()); err != nil {
			return
		}
	}
}

// waitForNothing waits for a message, although none is sent, until the connection ends.
func (s *session) waitForNothing() {
	m, err := s.recv(KindRecv)
	if err == nil {
		s.p.ledger.wrong("a message of %d bytes where none is sent", len(m.Data))
		_ = m.Release()
	}
}

// bg is the context of operations. It never ends: the time limits of the runtime must end them.
var bg = context.Background()

// session is a connection on which the load works.
type session struct {
	p      *Peer
	c      *verbena.Conn
	g      greeting
	seed   uint64
	limits Limits
}

// recv receives a message as an operation of kind k.
func (s *session) recv(k Kind) (verbena.Message, error) {
	op := s.p.ledger.begin(k, s.limits.Recv)
	m, err := s.c.RecvWait(bg)
	return m, s.p.ledger.end(op, err)
}

// do starts an operation, records it as kind k and waits for its result.
func (s *session) do(k Kind, start func() (verbena.Future, error)) (verbena.Result, error) {
	op := s.p.ledger.begin(k, s.limits.Op)
	f, err := start()
	var r verbena.Result
	if err == nil {
		r, err = f.Await(bg)
	}
	return r, s.p.ledger.end(op, err)
}

// sendBytes sends a copy of b and waits until the peer's device has acknowledged it.
func (s *session) sendBytes(b []byte) error {
	_, err := s.do(KindSend, func() (verbena.Future, error) { return s.c.SendBytes(bg, b) })
	return err
}
