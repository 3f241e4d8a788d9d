package cm

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: in TIMEWAIT a connection that its owner has closed is only its numbers, and late datagrams
// are answered as before: a DREQ with a DREP, a REQ or a REP for the queue pair as stale. After
// TIMEWAIT the numbers are free.
func TestClosedInTimewait(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	ca := p.connect(t, ConnectParam{})
	p.run(time.Second)
	cb := p.last(p.b).Conn
	local, remote := cb.local, ca.local
	ca.User, cb.User = t, t
	ca.Close(p.now)
	cb.Close(p.now)
	if ca.User != nil || cb.User != nil {
		t.Errorf("closed connections keep their owners %v and %v", ca.User, cb.User)
	}
	p.run(p.now + 10*simHop)
	for _, n := range []*simNode{p.a, p.b} {
		if n.Conns() != 1 || len(n.byLocal)+len(n.byRemote)+len(n.byQPN) != 0 || n.timewait.len() != 1 {
			t.Fatalf("%s has %d connections, %d of them in whole; want 1, 0", n.name, n.Conns(), len(n.byLocal))
		}
	}

	var got []Message
	p.fate = func(from, _ *simNode, m *MAD) []time.Duration {
		if msg, err := Parse(m[:]); err == nil && from == p.b {
			got = append(got, msg)
		}
		return nil
	}
	say := func(src wire.Path, msg Message) Message {
		t.Helper()
		got = nil
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.b.Receive(p.now, src, m[:]); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 {
			t.Fatalf("%v got %d answers, want 1", msg.Attr(), len(got))
		}
		return got[0]
	}
	repeated := p.b.Stats().Repeated
	if r, ok := say(p.a.at, &DREQ{LocalID: remote, RemoteID: local, RemoteQPN: 77}).(*DREP); !ok || r.RemoteID != remote {
		t.Errorf("a late DREQ got %+v, want a DREP", got[0])
	}
	if n := p.b.Stats().Repeated - repeated; n != 1 {
		t.Errorf("the answer counts %d times as repeated", n)
	}
	stale := func(msg Message) {
		t.Helper()
		if r, ok := say(p.a.at, msg).(*REJ); !ok || r.Reason != RejStaleConn {
			t.Errorf("a late %v got %+v, want a REJ: stale connection", msg.Attr(), got[0])
		}
	}
	again := &REQ{LocalID: remote, ServiceID: 7, QPN: 55, PathMTU: 5, RemoteTimeout: 15, LocalTimeout: 15}
	stale(again)
	stale(&REQ{LocalID: remote + 1, ServiceID: 7, QPN: 55, PathMTU: 5})
	stale(&REP{LocalID: remote, RemoteID: local, QPN: 55})

	// The same numbers from another address do not belong to it.
	p.hold = true
	heard := len(p.heard[p.b])
	var m MAD
	if err := again.Put(&m); err != nil {
		t.Fatal(err)
	}
	elsewhere := p.a.at
	elsewhere.Peer[14] = 9
	if err := p.b.Receive(p.now, elsewhere, m[:]); err != nil {
		t.Fatal(err)
	}
	if len(p.heard[p.b]) != heard+1 || p.last(p.b).Kind != EvRequest {
		t.Errorf("the queue pair number of another port's got %v, want REQUEST", p.last(p.b).Kind)
	}
	p.last(p.b).Conn.Close(p.now)

	ids := 0
	p.b.cfg.Rand = func() uint64 { // the ID in TIMEWAIT first
		ids++
		return uint64(local) + uint64(ids-1)
	}
	if id := p.b.newID(); id == local {
		t.Errorf("communication ID %08x is given anew in TIMEWAIT", id)
	}
	p.run(p.now + time.Minute)
	if p.b.Conns() != 0 || p.a.Conns() != 0 || p.b.timewait.ids != nil || p.b.Next() != 0 {
		t.Errorf("after TIMEWAIT %d and %d connections are left", p.a.Conns(), p.b.Conns())
	}
	ids = 0
	if id := p.b.newID(); id != local {
		t.Errorf("communication ID %08x is not free after TIMEWAIT", local)
	}
}

// Rule: the owner of an open connection gets TIMEWAIT_EXIT; a connection closed in TIMEWAIT stays
// for the rest of the time.
func TestTimewaitRunsOn(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	ca := p.connect(t, ConnectParam{})
	p.run(time.Second)
	if err := ca.Disconnect(p.now, nil); err != nil {
		t.Fatal(err)
	}
	p.run(p.now + 2*simHop)
	began := p.now
	ca.Close(p.now)
	p.run(began + defaultTimeWait/2)
	if p.a.Conns() != 1 {
		t.Errorf("%d connections in TIMEWAIT, want 1", p.a.Conns())
	}
	p.run(began + defaultTimeWait)
	if p.a.Conns() != 0 {
		t.Errorf("%d connections after TIMEWAIT", p.a.Conns())
	}
	if e := p.last(p.b); e.Kind != EvTimewaitExit {
		t.Errorf("who did not close heard %v last, want TIMEWAIT_EXIT", e.Kind)
	}
	if e := p.last(p.a); e.Kind != EvDisconnected {
		t.Errorf("who closed heard %v last, want DISCONNECTED", e.Kind)
	}
}
