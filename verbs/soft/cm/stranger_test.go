package cm

import (
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// forPeer is a connection in a state in which a datagram of its peer has an effect, and that
// datagram.
type forPeer struct {
	name string
	// bring puts a connection of n into the state.
	bring func(t *testing.T, p *pair) (n *simNode, c *Conn)
	// right returns a valid datagram of the peer; wrong returns variants that name another
	// connection. other is the peer's connection, nil if there is none.
	right func(c, other *Conn) Message
	wrong func(c, other *Conn) []Message
}

// deaf loses every datagram from now on.
func (p *pair) deaf() { p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil } }

// deafTo loses every datagram of one node.
func (p *pair) deafTo(n *simNode) {
	p.fate = func(from, _ *simNode, _ *MAD) []time.Duration {
		if from == n {
			return nil
		}
		return []time.Duration{simHop}
	}
}

// Connections that wait for the peer; asking leaves A in REQ_SENT and B without a connection.
func asking(t *testing.T, p *pair) (*simNode, *Conn) { // A, in REQ_SENT; B has nothing
	p.deaf()
	return p.a, p.connect(t, ConnectParam{})
}

func asked(t *testing.T, p *pair) (*simNode, *Conn) { // B, in REQ_RCVD
	p.hold = true
	c := p.connect(t, ConnectParam{})
	p.run(2 * simHop)
	return p.b, p.heardOf(t, p.b, c)
}

func accepted(t *testing.T, p *pair) (*simNode, *Conn) { // B, in REP_SENT
	p.deafTo(p.b)
	c := p.connect(t, ConnectParam{})
	p.run(2 * simHop)
	return p.b, p.heardOf(t, p.b, c)
}

func established(t *testing.T, p *pair) (*simNode, *Conn) { // A
	c := p.connect(t, ConnectParam{})
	p.run(50 * time.Millisecond)
	return p.a, c
}

func establishedPassive(t *testing.T, p *pair) (*simNode, *Conn) { // B
	c := p.connect(t, ConnectParam{})
	p.run(50 * time.Millisecond)
	return p.b, p.heardOf(t, p.b, c)
}

func leaving(t *testing.T, p *pair) (*simNode, *Conn) { // A, in DREQ_SENT
	n, c := established(t, p)
	p.deaf()
	if err := c.Disconnect(p.now, nil); err != nil {
		t.Fatal(err)
	}
	return n, c
}

func lookingUp(t *testing.T, p *pair) (*simNode, *Conn) { // A, in SIDR_REQ_SENT
	p.deaf()
	return p.a, p.ask(t, 7)
}

// heardOf returns the connection of n whose peer is c.
func (p *pair) heardOf(t *testing.T, n *simNode, c *Conn) *Conn {
	t.Helper()
	for _, d := range n.byLocal {
		if d.remote == c.local {
			return d
		}
	}
	t.Fatalf("%s does not know of %v", n.name, c)
	return nil
}

var forPeers = []forPeer{
	{"REP in REQ_SENT", asking,
		func(c, _ *Conn) Message { return &REP{LocalID: 9, RemoteID: c.local, QPN: 99} },
		func(c, _ *Conn) []Message { return []Message{&REP{LocalID: 9, RemoteID: c.local + 1, QPN: 99}} }},
	{"MRA in REQ_SENT", asking,
		func(c, _ *Conn) Message {
			return &MRA{LocalID: 9, RemoteID: c.local, Answers: AnswersREQ, ServiceTimeout: 20}
		},
		func(c, _ *Conn) []Message {
			return []Message{
				&MRA{LocalID: 9, RemoteID: c.local + 1, Answers: AnswersREQ, ServiceTimeout: 20},
				&MRA{LocalID: 9, RemoteID: c.local, Answers: AnswersREP, ServiceTimeout: 20},
			}
		}},
	{"REJ in REQ_SENT", asking,
		func(c, _ *Conn) Message { return &REJ{RemoteID: c.local, Reason: RejConsumer} },
		func(c, _ *Conn) []Message { return []Message{&REJ{RemoteID: c.local + 1, Reason: RejConsumer}} }},
	{"DREQ in REQ_SENT", asking,
		func(c, _ *Conn) Message { return &DREQ{LocalID: 9, RemoteID: c.local, RemoteQPN: 55} },
		func(c, _ *Conn) []Message {
			return []Message{&DREQ{LocalID: 9, RemoteID: c.local, RemoteQPN: 56}, &DREQ{LocalID: 9, RemoteID: c.local + 1, RemoteQPN: 55}}
		}},
	{"REJ in REQ_RCVD", asked, // the peer does not know the local ID yet
		func(_, other *Conn) Message { return &REJ{LocalID: other.local, Reason: RejTimeout} },
		func(_, other *Conn) []Message { return []Message{&REJ{LocalID: other.local + 1, Reason: RejTimeout}} }},
	{"REJ in REP_SENT", accepted,
		func(c, other *Conn) Message {
			return &REJ{LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		},
		func(c, other *Conn) []Message {
			return []Message{&REJ{LocalID: other.local + 1, RemoteID: c.local, Reason: RejConsumer}, &REJ{LocalID: other.local, RemoteID: c.local + 1, Reason: RejConsumer}}
		}},
	{"RTU in REP_SENT", accepted,
		func(c, other *Conn) Message { return &RTU{LocalID: other.local, RemoteID: c.local} },
		func(c, other *Conn) []Message {
			return []Message{&RTU{LocalID: other.local + 1, RemoteID: c.local}, &RTU{LocalID: other.local, RemoteID: c.local + 1}}
		}},
	{"MRA in REP_SENT", accepted,
		func(c, other *Conn) Message {
			return &MRA{LocalID: other.local, RemoteID: c.local, Answers: AnswersREP, ServiceTimeout: 20}
		},
		func(c, other *Conn) []Message {
			return []Message{
				&MRA{LocalID: other.local + 1, RemoteID: c.local, Answers: AnswersREP, ServiceTimeout: 20},
				&MRA{LocalID: other.local, RemoteID: c.local, Answers: AnswersREQ, ServiceTimeout: 20},
			}
		}},
	{"DREQ in ESTABLISHED", established,
		func(c, other *Conn) Message { return &DREQ{LocalID: other.local, RemoteID: c.local, RemoteQPN: 55} },
		func(c, other *Conn) []Message {
			return []Message{
				&DREQ{LocalID: other.local, RemoteID: c.local, RemoteQPN: 56},
				&DREQ{LocalID: other.local + 1, RemoteID: c.local, RemoteQPN: 55},
			}
		}},
	{"REJ in ESTABLISHED", established,
		func(c, other *Conn) Message {
			return &REJ{LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		},
		func(c, other *Conn) []Message {
			return []Message{&REJ{RemoteID: c.local, Reason: RejNoResources}, &REJ{LocalID: other.local + 1, RemoteID: c.local, Reason: RejConsumer}}
		}},
	{"REJ in ESTABLISHED, passive", establishedPassive,
		func(c, other *Conn) Message {
			return &REJ{LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		},
		func(_, other *Conn) []Message { return []Message{&REJ{LocalID: other.local, Reason: RejTimeout}} }}, // for a REQ, late
	{"REP in ESTABLISHED", established, // answered by repeating the RTU
		func(c, other *Conn) Message { return &REP{LocalID: other.local, RemoteID: c.local, QPN: 77} },
		func(c, other *Conn) []Message {
			return []Message{&REP{LocalID: other.local + 1, RemoteID: c.local, QPN: 77}}
		}},
	{"DREP in DREQ_SENT", leaving,
		func(c, other *Conn) Message { return &DREP{LocalID: other.local, RemoteID: c.local} },
		func(c, other *Conn) []Message { return []Message{&DREP{LocalID: other.local + 1, RemoteID: c.local}} }},
	{"SIDR_REP in SIDR_REQ_SENT", lookingUp,
		func(c, _ *Conn) Message { return &SIDRREP{TID: c.tid, RequestID: c.local, QPN: 77} },
		func(c, _ *Conn) []Message {
			return []Message{&SIDRREP{TID: c.tid, RequestID: c.local + 1, QPN: 77}, &SIDRREP{TID: c.tid + 1, RequestID: c.local, QPN: 77}}
		}},
}

// view is the state that a datagram may change.
type view struct {
	state    State
	next     time.Duration
	conns    int
	heard    int
	repeated uint64
}

func (p *pair) view(n *simNode, c *Conn) view {
	return view{c.State(), n.Next(), n.Conns(), len(p.heard[n]), n.Stats().Repeated}
}

// TestOnlyFromThePeer checks that a datagram that would change a connection changes nothing when it
// comes from another address, or names another connection or queue pair; and that the right one
// does.
func TestOnlyFromThePeer(t *testing.T) {
	for _, f := range forPeers {
		t.Run(f.name, func(t *testing.T) {
			p := newPair(t, Config{}, Config{})
			evil := p.node("E", Config{}, 1, func(*simNode, Event) {})
			n, c := f.bring(t, p)
			peer := p.a
			if n == p.a {
				peer = p.b
			}
			var other *Conn
			for _, d := range peer.byLocal {
				other = d
			}
			p.deaf() // lose the answers to the datagrams
			before := p.view(n, c)
			send := func(from wire.Path, msg Message) {
				t.Helper()
				var m MAD
				if err := msg.Put(&m); err != nil {
					t.Fatal(err)
				}
				if err := n.Receive(p.now, from, m[:]); err != nil {
					t.Fatal(err)
				}
			}
			same := func(what string) {
				t.Helper()
				if got := p.view(n, c); got != before {
					t.Errorf("%s: %+v became %+v", what, before, got)
					before = got
				}
			}
			send(evil.at, f.right(c, other))
			same("from a stranger")
			for i, msg := range f.wrong(c, other) {
				send(peer.at, msg)
				same(fmt.Sprintf("wrong one %d, %s", i, describe(msg)))
			}
			send(peer.at, f.right(c, other))
			if got := p.view(n, c); got == before {
				t.Errorf("from the peer it changes nothing: %+v; the case shows nothing", got)
			}
		})
	}
}
