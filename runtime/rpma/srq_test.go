package rpma

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
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
