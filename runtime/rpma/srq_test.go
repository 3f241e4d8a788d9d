package rpma

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: an SRQ has by default 100 receives and a receive CQ for as many. A receive CQ holds at least what the
// SRQ can produce; with -1 there is none.
func TestSRQSizes(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		for _, x := range []struct {
			cfg     *SRQConfig
			rq, rcq int
		}{{nil, 100, 100}, {&SRQConfig{}, 100, 100}, {&SRQConfig{RQSize: 7}, 7, 100}, {&SRQConfig{RQSize: 200, RCQSize: 5}, 200, 200}, {&SRQConfig{RQSize: 5, RCQSize: 300}, 5, 300}, {&SRQConfig{RCQSize: -1}, 100, 0}} {
			s := must.Get(r.peer[0].NewSRQ(x.cfg))(t)
			rcq := 0
			if s.RCQ() != nil {
				rcq = s.RCQ().Size()
			}
			if int(s.places.most) != x.rq || rcq != x.rcq {
				t.Errorf("with %+v the SRQ has %d receives and %d places in its CQ, want %d and %d", x.cfg, s.places.most, rcq, x.rq, x.rcq)
			}
			m := r.mr(0, 8, RecvBuf)
			for i := range x.rq {
				must.Do(t, s.Recv(m, 0, 8, uint64(i)))
			}
			err := s.Recv(m, 0, 8, 0)
			if isCode(t, "one receive more than SRQConfig.RQSize", err, ErrProvider); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("the error is %v, want ENOMEM", err)
			}
			must.Do(t, s.Close())
			must.Do(t, s.Close())
			isCode(t, "a receive of a closed SRQ", s.Recv(m, 0, 8, 0), ErrInvalid)
			if rcq > 0 {
				isCode(t, "waiting for the CQ of a closed SRQ", s.RCQ().Wait(r.ctx), ErrNoCompletion)
			}
		}
	})
}

// Rule: receives of an SRQ serve several connections. Without a receive CQ of the SRQ, they complete to the
// receive CQ of the connection that takes them, or to its main CQ; with one, to that, and the connection
// has none. While a connection uses an SRQ, the SRQ cannot be closed.
func TestSRQServesConnections(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		ep, port := r.listen()
		for _, own := range []bool{true, false} {
			cfg := SRQConfig{RQSize: 4, RCQSize: -1}
			if own {
				cfg.RCQSize = 0
			}
			srq := must.Get(r.peer[1].NewSRQ(&cfg))(t)
			into, from := r.mr(1, 64, RecvBuf), r.mr(0, 64, SendBuf)
			var clients, servers []*Conn
			for i := range 3 {
				c, s := r.connectTo(ep, port, nil, &ConnConfig{SRQ: srq, RCQSize: i % 2 * 8})
				clients, servers = append(clients, c), append(servers, s)
				if (s.RCQ() != nil) != (!own && i == 1) {
					t.Errorf("the SRQ has a receive CQ: %t; connection %d has one: %t", own, i, s.RCQ() != nil)
				}
				err := s.Recv(into, 0, 8, 1)
				if isCode(t, "a receive of a connection with an SRQ", err, ErrProvider); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("the error is %v, want EINVAL", err)
				}
			}
			if err := srq.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("closing an SRQ in use returned %v, want verbs.ErrBusy", err)
			}
			for round := range 10 { // more than the SRQ has receives: their places are free again
				must.Do(t, srq.Recv(into, 0, 8, uint64(round)))
				i := round % 3
				must.Do(t, clients[i].SendWithImm(from, 0, 5, CompletionAlways, uint32(i), 7))
				r.done(clients[i].CQ(), 7)
				cq := srq.RCQ()
				if !own {
					cq = servers[i].recvCQ()
				}
				if wc := r.done(cq, uint64(round)); wc.QPNum != servers[i].QPNum() || wc.Imm != uint32(i) || wc.Bytes != 5 {
					t.Errorf("message %d arrived as %+v, want it from queue pair %d", round, wc, servers[i].QPNum())
				}
			}
			must.Do(t, srq.Recv(nil, 0, 0, 11))
			must.Do(t, clients[0].Send(nil, 0, 0, CompletionAlways, 7))
			cq := srq.RCQ()
			if !own {
				cq = servers[0].recvCQ()
			}
			if wc := r.done(cq, 11); wc.Bytes != 0 {
				t.Errorf("a message of no bytes arrived as %+v", wc)
			}
			for i := range clients {
				must.Do(t, servers[i].Close(r.ctx))
				must.Do(t, clients[i].Close(r.ctx))
			}
			must.Do(t, srq.Close())
		}
	})
}

// Rule: a completion that is lost with its connection gives its place in the SRQ back, so a peer that sends
// and disconnects takes nothing from the others. (The bug: after as many such peers as the SRQ has places,
// Recv was ENOMEM for ever.)
func TestSRQPlacesComeBackWithAClosedConnection(t *testing.T) {
	r := mainBed(t).rig(t)
	const places = 4
	srq := must.Get(r.peer[1].NewSRQ(&SRQConfig{RQSize: places, RCQSize: -1}))(t)
	buf := must.Get(r.peer[1].NewMR(64, RecvBuf))(t)
	msg := r.mr(0, 64, SendBuf)
	ep, port := r.listen()
	for round := range 2 * places {
		if err := srq.Recv(buf, 0, 64, 7); err != nil {
			t.Fatalf("round %d: a receive, with none posted and no connection open: %v", round, err)
		}
		c, s := r.connectTo(ep, port, nil, &ConnConfig{SRQ: srq})
		must.Do(t, c.Send(msg, 0, 8, CompletionAlways, 1))
		r.done(c.CQ(), 1)
		must.Do(t, c.Close(r.ctx)) // the program at the other end does not take the completion
		must.Do(t, s.Close(r.ctx))
		if n := srq.places.used.Load(); n != 0 {
			t.Fatalf("round %d: %d places are used, want none", round, n)
		}
	}
	must.Do(t, srq.Close())
	must.Do(t, buf.Close())
}

// Rule: of a completion that comes while its CQ ends, either side gives the place back, once.
func TestEndOfACQBesideACompletion(t *testing.T) {
	p := mainBed(t).rig(t).peer[0]
	srq := must.Get(p.NewSRQ(nil))(t)
	for range 200 {
		b := must.Get(newBell(p, srq.rcq.bell.r))(t)
		q, of := newCQ(b, false, 8), places{most: 8}
		var pushes sync.WaitGroup
		pushes.Go(func() {
			for range 4 {
				of.take()
				q.push(&reactor.Completion{}, 1, nil, &of)
			}
		})
		q.end()
		pushes.Wait()
		if n := of.used.Load(); n != 0 || !q.empty() {
			t.Fatalf("%d places are used, the queue is empty: %t; want none, true", n, q.empty())
		}
		b.close()
	}
	must.Do(t, srq.Close())
}
