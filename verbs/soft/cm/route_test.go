package cm

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: a request that is refused without a look at the route costs none: it is a system call, and strangers choose
// how often it is made.
func TestRefusalsLookUpNoRoute(t *testing.T) {
	looked := 0
	p := newPair(t, Config{}, Config{FarMTU: func(wire.Path) verbs.MTU {
		looked++
		return verbs.MTU1024
	}})
	p.a.at.LocalPort, p.b.at.LocalPort = 7, 7
	p.hold = true
	p.b.listeners[7][0].backlog = 1
	ask := func(change func(*REQ)) {
		t.Helper()
		q := &REQ{TID: 1, LocalID: 2, ServiceID: 7, QPN: 3, PathMTU: 3}
		change(q)
		var m MAD
		if err := q.Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.b.Receive(p.now, p.a.at, m[:]); err != nil {
			t.Fatal(err)
		}
	}
	ask(func(q *REQ) { q.Transport = TransportUC })
	if looked != 0 {
		t.Errorf("a request of another transport took %d looks", looked)
	}
	if ask(func(*REQ) {}); looked != 1 || p.b.Conns() != 1 {
		t.Fatalf("a request that is taken took %d looks, want 1; there are %d connections", looked, p.b.Conns())
	}
	ask(func(*REQ) {})                                // repeated
	ask(func(q *REQ) { q.LocalID = 4 })               // the queue pair is in use
	ask(func(q *REQ) { q.LocalID, q.QPN = 4, 5 })     // the backlog is full
	ask(func(q *REQ) { q.LocalID, q.PathMTU = 4, 9 }) // both
	if looked != 1 {
		t.Errorf("refused requests took %d looks", looked-1)
	}
}

// Rule: a request from another process to a listener whose backlog is full is not refused, because strangers can fill
// it: it is repeated, and finds a place when there is one.
func TestAFullBacklogRefusesNobodyOutside(t *testing.T) {
	s := newSim()
	var asked []*Conn
	b := s.node("B", Config{}, 1, func(_ *simNode, e Event) {
		if e.Kind == EvRequest {
			asked = append(asked, e.Conn)
		}
	})
	must.Get(b.Listen(7, 1, nil))(t)
	answers := 0
	s.fate = func(from, _ *simNode, _ *MAD) []time.Duration {
		if from == b {
			answers++
		}
		return nil
	}
	from := wire.Path{Peer: b.at.Peer, PeerPort: 9, LocalPort: 7}
	ask := func(id uint32) {
		var m MAD
		must.Do(t, (&REQ{TID: uint64(id), LocalID: id, ServiceID: 7, QPN: id, PathMTU: 3}).Put(&m))
		must.Do(t, b.Receive(s.now, from, m[:]))
	}
	ask(2)
	ask(3)
	if len(asked) != 1 || answers != 0 {
		t.Fatalf("%d requests were taken and %d answers sent, want 1 and 0", len(asked), answers)
	}
	asked[0].Close(s.now)
	ask(3)
	if len(asked) != 2 {
		t.Error("the request that was repeated was not taken")
	}
}
