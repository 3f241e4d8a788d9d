package cm

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// questions returns a pair whose B answers queries for service 7 with queue pair 77.
func questions(t *testing.T) *pair {
	p := newPair(t, Config{}, Config{})
	on := p.b.on
	p.b.on = func(n *simNode, e Event) {
		on(n, e)
		if e.Kind == EvSIDRRequest && !p.hold {
			if err := e.Conn.Answer(p.now, SIDRSuccess, 77, 0x1234, []byte("here")); err != nil {
				t.Error(err)
			}
		}
	}
	return p
}

func (p *pair) ask(t *testing.T, service uint64) *Conn {
	t.Helper()
	c, err := p.a.Lookup(p.now, &LookupParam{Dst: p.b.at, ServiceID: service, PKey: 0xffff, Private: []byte("who?")}, "mine")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// kinds returns the kinds of the events of a node.
func (p *pair) kinds(n *simNode) (ks []EventKind) {
	for _, e := range p.heard[n] {
		ks = append(ks, e.Kind)
	}
	return ks
}

// TestLookup checks that the query reaches the listener once and its answer the sender, even if
// datagrams are lost or doubled, and that both machines forget it in the end.
func TestLookup(t *testing.T) {
	for name, copies := range map[string]func(n int, fromA bool) int{
		"plain":              func(int, bool) int { return 1 },
		"doubled":            func(int, bool) int { return 2 },
		"two questions lost": func(n int, fromA bool) int { return btoi(!fromA || n > 2) },
		"two answers lost":   func(n int, fromA bool) int { return btoi(fromA || n > 2) },
	} {
		t.Run(name, func(t *testing.T) {
			p := questions(t)
			seen := map[*simNode]int{}
			p.fate = func(from, _ *simNode, _ *MAD) (ds []time.Duration) {
				seen[from]++
				for range copies(seen[from], from == p.a) {
					ds = append(ds, simHop)
				}
				return ds
			}
			c := p.ask(t, 7)
			p.run(time.Minute)
			if ks := p.kinds(p.b); len(ks) != 1 || ks[0] != EvSIDRRequest {
				t.Fatalf("the listener heard %v, want one question", ks)
			}
			if q := p.heard[p.b][0].SIDRREQ; string(q.Private[:4]) != "who?" || q.PKey != 0xffff || p.heard[p.b][0].Conn.Peer() != p.a.at {
				t.Errorf("the question was %+v", q)
			}
			if ks := p.kinds(p.a); len(ks) != 1 || ks[0] != EvSIDRReply {
				t.Fatalf("the asker heard %v, want one answer", ks)
			}
			e := p.heard[p.a][0]
			if r := e.SIDRREP; e.Conn != c || e.Conn.User != "mine" || r.Status != SIDRSuccess || r.QPN != 77 || r.QKey != 0x1234 || string(r.Private[:4]) != "here" {
				t.Errorf("the answer was %+v", r)
			}
			for _, n := range p.nodes {
				if n.Conns() != 0 || len(n.bySIDR) != 0 || n.Next() != 0 {
					t.Errorf("%s remembers %d conversations, %d questions", n.name, n.Conns(), len(n.bySIDR))
				}
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLookupFails checks a service without a listener, a listener that refuses or closes or has a
// full backlog, and an absent peer.
func TestLookupFails(t *testing.T) {
	p := questions(t)
	p.hold = true
	p.ask(t, 8)
	p.run(p.now + time.Second)
	if r := p.last(p.a).SIDRREP; r == nil || r.Status != SIDRUnsupported {
		t.Errorf("nobody listens: %+v", r)
	}
	p.ask(t, 7)
	p.run(p.now + 10*simHop)
	if err := p.last(p.b).Conn.Answer(p.now, SIDRReject, 77, 1, []byte("no")); err != nil {
		t.Fatal(err)
	}
	p.run(p.now + time.Second)
	if r := p.last(p.a).SIDRREP; r == nil || r.Status != SIDRReject || string(r.Private[:2]) != "no" || r.QPN != 0 {
		t.Errorf("refused: %+v", r)
	}
	if err := p.last(p.b).Conn.Answer(p.now, SIDRReject, 0, 0, nil); !errors.Is(err, ErrState) {
		t.Errorf("answering twice: %v", err)
	}
	p.ask(t, 7)
	p.run(p.now + 10*simHop)
	p.last(p.b).Conn.Close(p.now)
	p.run(p.now + time.Second)
	if r := p.last(p.a).SIDRREP; r == nil || r.Status != SIDRReject {
		t.Errorf("the question was closed: %+v", r)
	}
	if _, err := p.b.Listen(9, 1, nil); err != nil {
		t.Fatal(err)
	}
	p.ask(t, 9)
	p.ask(t, 9)
	p.run(p.now + 10*simHop)
	if r := p.last(p.a).SIDRREP; r == nil || r.Status != SIDRNoQP {
		t.Errorf("a full backlog: %+v", r)
	}
	p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil }
	before := p.a.Stats().Sent
	p.ask(t, 7)
	p.run(p.now + time.Minute)
	if p.last(p.a).Kind != EvUnreachable || p.a.Stats().Sent-before != defaultMaxRetries+1+defaultMaxRetries {
		// The other defaultMaxRetries are for the query that waits for its listener.
		t.Errorf("nobody there: %v after %d datagrams", p.last(p.a).Kind, p.a.Stats().Sent-before)
	}
	if n := p.a.Conns(); n != 0 {
		t.Errorf("A remembers %d questions", n)
	}
}

// TestAnswersOnlyFromThePeer checks that an answer is accepted only from the queried address, for
// an outstanding query, once; and that queries do not affect connections, nor the reverse.
func TestAnswersOnlyFromThePeer(t *testing.T) {
	p := questions(t)
	p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil }
	c := p.ask(t, 7)
	give := func(src wire.Path, id uint32, tid uint64) {
		t.Helper()
		var m MAD
		if err := (&SIDRREP{TID: tid, RequestID: id, QPN: 5}).Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.a.Receive(p.now, src, m[:]); err != nil {
			t.Fatal(err)
		}
	}
	give(p.a.at, c.local, c.tid)
	give(p.b.at, c.local+1, c.tid)
	give(p.b.at, c.local, c.tid+1)
	if n := len(p.heard[p.a]); n != 0 {
		t.Fatalf("%d answers were believed", n)
	}
	for _, err := range []error{
		c.Accept(p.now, &AcceptParam{}), c.Reject(p.now, RejConsumer, nil), c.SendRTU(p.now, nil), c.Disconnect(p.now, nil),
		c.SendDREP(p.now, nil), c.Answer(p.now, SIDRSuccess, 2, 0, nil),
	} {
		if !errors.Is(err, ErrState) {
			t.Errorf("a call for connections on a question: %v", err)
		}
	}
	var m MAD
	for _, msg := range []Message{
		&REP{RemoteID: c.local, LocalID: 9, QPN: 9}, &REJ{RemoteID: c.local, LocalID: 9}, &MRA{RemoteID: c.local, LocalID: 9},
	} {
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.a.Receive(p.now, p.b.at, m[:]); err != nil {
			t.Fatal(err)
		}
	}
	give(p.b.at, c.local, c.tid)
	give(p.b.at, c.local, c.tid)
	if ks := p.kinds(p.a); len(ks) != 1 || ks[0] != EvSIDRReply {
		t.Fatalf("heard %v, want one answer", ks)
	}
	if _, err := p.a.Lookup(p.now, &LookupParam{Dst: p.b.at, Private: make([]byte, PrivateSIDRREQ+1)}, nil); !errors.Is(err, ErrRange) {
		t.Errorf("too much private data: %v", err)
	}
}

// TestQuestionRepeatedWhileItWaits checks that a repeated query is not answered before the consumer
// answers, and that another query under the same ID does not get the answer of the first.
func TestQuestionRepeatedWhileItWaits(t *testing.T) {
	p := questions(t)
	p.hold = true
	var sent []MAD
	p.fate = func(from, _ *simNode, m *MAD) []time.Duration {
		if from == p.b {
			sent = append(sent, *m)
		}
		return []time.Duration{simHop}
	}
	c := p.ask(t, 7)
	give := func(tid uint64) {
		t.Helper()
		var m MAD
		if err := (&SIDRREQ{TID: tid, RequestID: c.local, ServiceID: 7}).Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.b.Receive(p.now, p.a.at, m[:]); err != nil {
			t.Fatal(err)
		}
	}
	p.run(p.now + 2*simHop)
	give(c.tid)
	if len(sent) != 0 || len(p.heard[p.b]) != 1 {
		t.Fatalf("a repetition while the consumer thinks: %d answers, %d questions heard; want 0, 1", len(sent), len(p.heard[p.b]))
	}
	if err := p.last(p.b).Conn.Answer(p.now, SIDRReject, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	give(c.tid + 1)
	if len(sent) != 1 {
		t.Fatalf("%d answers after another question under the same ID, want the one of the first", len(sent))
	}
	give(c.tid)
	if len(sent) != 2 || sent[1] != sent[0] {
		t.Fatalf("%d answers after a repetition, want the same twice", len(sent))
	}
	// Four times as long as the local retry settings require, no longer. (A repetition once waited for 2.7 s in the
	// socket of a process without a processor, and reached the listener as a second query.)
	keep := 4 * codeTime(defaultResponseTimeout) * (defaultMaxRetries + 1)
	p.run(p.now + keep - time.Microsecond)
	if p.b.Conns() != 1 {
		t.Errorf("an answer is forgotten before %v", keep)
	}
	p.run(p.now + time.Microsecond)
	if p.b.Conns() != 0 {
		t.Errorf("an answer is remembered after %v", keep)
	}
}

// TestAnswersNameTheService checks that an answer names the queried service, with or without a
// listener, and the query that it answers.
func TestAnswersNameTheService(t *testing.T) {
	p := questions(t)
	for _, service := range []uint64{7, 8} {
		c := p.ask(t, service)
		tid, id := c.tid, c.local
		p.run(p.now + time.Second)
		if r := p.last(p.a).SIDRREP; r == nil || r.ServiceID != service || r.TID != tid || r.RequestID != id {
			t.Errorf("asked for service %d with %x, %x: %+v", service, tid, id, r)
		}
	}
}

// TestSIDRAndConnectionsApart checks that an answer to a query ends no connection, and that a
// closed query is gone at once.
func TestSIDRAndConnectionsApart(t *testing.T) {
	p := questions(t)
	p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil }
	c := p.connect(t, ConnectParam{})
	var m MAD
	if err := (&SIDRREP{TID: c.tid, RequestID: c.local, QPN: 5}).Put(&m); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Receive(p.now, p.b.at, m[:]); err != nil {
		t.Fatal(err)
	}
	if c.State() != StateREQSent || len(p.heard[p.a]) != 0 {
		t.Errorf("an answer to no question: %v, %d events", c, len(p.heard[p.a]))
	}
	q := p.ask(t, 7)
	q.Close(p.now)
	if p.a.Conns() != 1 || q.State() != StateIdle {
		t.Errorf("a closed question: %v, %d conversations", q, p.a.Conns())
	}
	before := p.a.Stats().Sent
	q.Close(p.now)
	if p.a.Stats().Sent != before {
		t.Error("closing a question again sent something")
	}
}

// Rule (kernel cma.c, cma_match_private_data): a service has a listener for each IP version, or one for both; requests
// and queries go by the version in the RDMA CM header, which a peer may fill with anything.
func TestListenersByIPVersion(t *testing.T) {
	for _, has := range []uint8{0, 4, 6} {
		p := newPair(t, Config{}, Config{})
		p.hold = true
		l, err := p.b.ListenAt(9, verbs.GID{}, has, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []uint8{0, 4, 6} {
			both := has != 0 && version != 0 && has != version
			if other, err := p.b.ListenAt(9, verbs.GID{}, version, 0, nil); (err == nil) != both || !both && !errors.Is(err, ErrInUse) {
				t.Errorf("a listener for version %d beside one for %d: %v", version, has, err)
			} else if both {
				other.Close()
			}
		}
		for version := range uint8(16) {
			heard := len(p.heard[p.b])
			if _, err := p.a.Lookup(p.now, &LookupParam{Dst: p.b.at, ServiceID: 9, Private: []byte{0, version << 4}}, nil); err != nil {
				t.Fatal(err)
			}
			ask := &ConnectParam{Dst: p.b.at, ServiceID: 9, QPN: 100 + uint32(version), Private: []byte{0, version << 4}}
			if _, err := p.a.Connect(p.now, ask, nil); err != nil {
				t.Fatal(err)
			}
			p.run(p.now + 10*simHop)
			var got []*Listener
			for _, e := range p.heard[p.b][heard:] {
				if e.Kind == EvRequest || e.Kind == EvSIDRRequest {
					got = append(got, e.Listener)
				}
			}
			if want := has == 0 || has == version; want != (len(got) == 2) || !want && len(got) != 0 {
				t.Errorf("requests of version %d came %d times to a listener for version %d", version, len(got), has)
			}
		}
		l.Close()
	}
}
