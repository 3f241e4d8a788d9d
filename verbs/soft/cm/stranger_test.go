package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// forPeer is a connection in a state in which a datagram of its peer has an effect, and that
// datagram.
type forPeer struct {
	name string
	// bring puts a connection of n into the state.
	bring func(t *testing.T, p *pair) (n *simNode, c *Conn)
	// names is the fields by which the datagram names the connection. right returns a valid datagram of the
	// peer; wrong, which may be nil, one that names the connection and has no effect. other is the peer's
	// connection, nil if there is none.
	names []string
	right func(c, other *Conn) Message
	wrong func(c, other *Conn) Message
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

// The fields that tell a connection from others, in most messages, and those that the receiver knows before it
// knows the peer's ID.
var (
	both  = []string{"TID", "LocalID", "RemoteID"}
	early = []string{"TID", "RemoteID"}
)

var forPeers = []forPeer{
	{"REP in REQ_SENT", asking, early,
		func(c, _ *Conn) Message { return &REP{TID: c.tid, LocalID: 9, RemoteID: c.local, QPN: 99} }, nil},
	{"MRA in REQ_SENT", asking, early,
		func(c, _ *Conn) Message {
			return &MRA{TID: c.tid, LocalID: 9, RemoteID: c.local, Answers: AnswersREQ, ServiceTimeout: 20}
		},
		func(c, _ *Conn) Message {
			return &MRA{TID: c.tid, LocalID: 9, RemoteID: c.local, Answers: AnswersREP, ServiceTimeout: 20}
		}},
	{"REJ in REQ_SENT", asking, early,
		func(c, _ *Conn) Message { return &REJ{TID: c.tid, RemoteID: c.local, Reason: RejConsumer} }, nil},
	{"DREQ in REQ_SENT", asking, []string{"RemoteID", "RemoteQPN"}, // its transaction is a new one of the peer's
		func(c, _ *Conn) Message { return &DREQ{LocalID: 9, RemoteID: c.local, RemoteQPN: 55} }, nil},
	{"REQ in REQ_RCVD", asked, []string{"TID", "LocalID", "QPN"}, // a repetition: it gets an MRA
		func(c, _ *Conn) Message { return c.req }, nil},
	{"REJ in REQ_RCVD", asked, []string{"TID", "LocalID"}, // the peer does not know the local ID yet
		func(c, other *Conn) Message { return &REJ{TID: c.tid, LocalID: other.local, Reason: RejTimeout} }, nil},
	{"REJ in REP_SENT", accepted, both,
		func(c, other *Conn) Message {
			return &REJ{TID: c.tid, LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		}, nil},
	{"RTU in REP_SENT", accepted, both,
		func(c, other *Conn) Message { return &RTU{TID: c.tid, LocalID: other.local, RemoteID: c.local} }, nil},
	{"MRA in REP_SENT", accepted, both,
		func(c, other *Conn) Message {
			return &MRA{TID: c.tid, LocalID: other.local, RemoteID: c.local, Answers: AnswersREP, ServiceTimeout: 20}
		},
		func(c, other *Conn) Message {
			return &MRA{TID: c.tid, LocalID: other.local, RemoteID: c.local, Answers: AnswersREQ, ServiceTimeout: 20}
		}},
	{"DREQ in ESTABLISHED", established, []string{"LocalID", "RemoteID", "RemoteQPN"},
		func(c, other *Conn) Message { return &DREQ{LocalID: other.local, RemoteID: c.local, RemoteQPN: 55} }, nil},
	{"REJ in ESTABLISHED", established, both,
		func(c, other *Conn) Message {
			return &REJ{TID: c.tid, LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		},
		func(c, other *Conn) Message { return &REJ{TID: c.tid, RemoteID: c.local, Reason: RejNoResources} }},
	{"REJ in ESTABLISHED, passive", establishedPassive, both,
		func(c, other *Conn) Message {
			return &REJ{TID: c.tid, LocalID: other.local, RemoteID: c.local, Reason: RejConsumer}
		},
		func(c, other *Conn) Message { return &REJ{TID: c.tid, LocalID: other.local, Reason: RejTimeout} }}, // for a REQ, late
	{"REP in ESTABLISHED", established, both, // answered by repeating the RTU
		func(c, other *Conn) Message {
			return &REP{TID: c.tid, LocalID: other.local, RemoteID: c.local, QPN: 77}
		}, nil},
	{"DREP in DREQ_SENT", leaving, both,
		func(c, other *Conn) Message { return &DREP{TID: c.dreqTID, LocalID: other.local, RemoteID: c.local} },
		func(c, other *Conn) Message { return &DREP{TID: c.tid, LocalID: other.local, RemoteID: c.local} }},
	{"SIDR_REP in SIDR_REQ_SENT", lookingUp, []string{"TID", "RequestID"},
		func(c, _ *Conn) Message { return &SIDRREP{TID: c.tid, RequestID: c.local, QPN: 77} }, nil},
}

// strays returns copies of a datagram that name another connection by one of the fields.
func strays(right Message, fields []string) (all []Message) {
	for _, f := range fields {
		v := reflect.New(reflect.TypeOf(right).Elem())
		v.Elem().Set(reflect.ValueOf(right).Elem())
		field := v.Elem().FieldByName(f)
		field.SetUint(field.Uint() ^ 4)
		all = append(all, v.Interface().(Message))
	}
	return all
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

// newFarPair is newPair with the machines in two processes.
func newFarPair(t *testing.T) *pair {
	p := newPair(t, Config{}, Config{})
	p.a.at.LocalPort, p.b.at.LocalPort = 7, 7
	return p
}

// TestOnlyFromThePeer checks that a datagram that would change a connection changes nothing when it
// comes from another address, or names another connection or queue pair; and that the right one
// does.
func TestOnlyFromThePeer(t *testing.T) {
	for _, f := range forPeers {
		t.Run(f.name, func(t *testing.T) {
			p := newFarPair(t)
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
			if _, ask := f.right(c, other).(*REQ); !ask { // a stranger may ask, too
				send(evil.at, f.right(c, other))
				same("from a stranger")
			}
			for i, msg := range strays(f.right(c, other), f.names) {
				send(peer.at, msg)
				same(fmt.Sprintf("%s with another %s", describe(msg), f.names[i]))
			}
			if f.wrong != nil {
				send(peer.at, f.wrong(c, other))
				same("the wrong " + describe(f.wrong(c, other)))
			}
			send(peer.at, f.right(c, other))
			if got := p.view(n, c); got == before {
				t.Errorf("from the peer it changes nothing: %+v; the case shows nothing", got)
			}
		})
	}
}

// Rule: a request from outside that names the peer's queue pair, which is in a connection, is refused as stale and
// changes nothing, whether there is a listener or not. From inside the process, where it is not forged, it ends the
// connection.
func TestARequestFromOutsideEndsNothing(t *testing.T) {
	inside := func(yes bool) func(wire.Path) bool { return func(wire.Path) bool { return yes } }
	for _, x := range []struct {
		name string
		cfg  Config
		far  bool
		ends bool
	}{
		{"between processes", Config{Inside: inside(true)}, true, false},
		{"from another machine without UDP ports", Config{Inside: inside(false)}, false, false},
		{"within the process", Config{Inside: inside(true)}, false, true},
	} {
		for _, bring := range []func(*testing.T, *pair) (*simNode, *Conn){established, establishedPassive} {
			for _, service := range []uint64{7, 8} { // B listens to 7
				p := newPair(t, x.cfg, x.cfg)
				if x.far {
					p.a.at.LocalPort, p.b.at.LocalPort = 7, 7
				}
				n, c := bring(t, p)
				peer := p.a
				if n == p.a {
					peer = p.b
				}
				if x.far { // there the port is the service
					service = uint64(n.at.LocalPort)
				}
				before := p.view(n, c)
				var said *REJ
				p.fate = func(from, _ *simNode, m *MAD) []time.Duration {
					if msg, err := Parse(m[:]); err == nil && from == n && msg.Attr() == AttrREJ {
						said = msg.(*REJ)
					}
					return nil
				}
				var m MAD
				if err := (&REQ{TID: 1, LocalID: 0x66, ServiceID: service, QPN: c.rqpn, PathMTU: 3}).Put(&m); err != nil {
					t.Fatal(err)
				}
				if err := n.Receive(p.now, peer.at, m[:]); err != nil {
					t.Fatal(err)
				}
				if said == nil || said.Reason != RejStaleConn {
					t.Errorf("%s, service %d: %s answers %+v, want a REJ: stale", x.name, service, n.name, said)
				}
				if got := p.view(n, c); got == before == x.ends {
					t.Errorf("%s, service %d: the connection of %s: %+v became %+v, want it to end: %v", x.name, service, n.name, before, got, x.ends)
				}
			}
		}
	}
}

// Rule: how long a half-open connection lives is this machine's choice, until its peer's address is proven.
func TestAStrangerDoesNotChooseHowLong(t *testing.T) {
	for _, far := range []bool{true, false} {
		p := newPair(t, Config{}, Config{Inside: func(wire.Path) bool { return false }})
		if far {
			p.a.at.LocalPort, p.b.at.LocalPort = 7, 7
		}
		p.deaf()
		var m MAD
		req := &REQ{TID: 1, LocalID: 2, ServiceID: 7, QPN: 3, PathMTU: 1, MaxCMRetries: 15, LocalTimeout: 31, RemoteTimeout: 31}
		if err := req.Put(&m); err != nil {
			t.Fatal(err)
		}
		if err := p.b.Receive(p.now, p.a.at, m[:]); err != nil {
			t.Fatal(err)
		}
		// The REP and the DREQ, each eight times after 134 ms.
		const most = 2 * (defaultMaxRetries + 1) * timeoutUnit << defaultResponseTimeout
		p.run(most + p.b.cfg.TimeWait)
		if e := p.last(p.b); e.Kind != EvUnreachable || p.b.Conns() != 0 {
			t.Errorf("UDP ports %v: the last event is %v, %d connections after %v; want UNREACHABLE, none", far, e.Kind, p.b.Conns(), p.now)
		}
	}
}

// Rule: a listener at an address gets the requests that have arrived there. What a request from outside says in its
// header is not believed; within the process, where all have one path, the header counts.
func TestListenersByAddress(t *testing.T) {
	one, two := verbs.GIDFromAddr(netip.MustParseAddr("127.0.0.1")), verbs.GIDFromAddr(netip.MustParseAddr("fd00::2"))
	for _, far := range []bool{true, false} {
		p := newPair(t, Config{}, Config{})
		p.hold = true
		at := map[verbs.GID]*Listener{}
		for _, gid := range []verbs.GID{one, two} {
			at[gid] = must.Get(p.b.ListenAt(9, gid, 0, 0, nil))(t)
		}
		for _, gid := range []verbs.GID{one, {}} {
			if _, err := p.b.ListenAt(9, gid, 0, 0, nil); !errors.Is(err, ErrInUse) {
				t.Errorf("a second listener at %v beside one at %v: %v", gid, one, err)
			}
		}
		ids := uint32(0)
		asks := func(arrives, says verbs.GID, want *Listener) {
			t.Helper()
			src := p.a.at
			if far {
				src.LocalPort, src.Local = 9, arrives
			}
			var head [PrivateREQ]byte
			ConnHeader{SrcPort: 1, Src: says.Addr(), Dst: says.Addr()}.Put(&head)
			ids++
			query := &SIDRREQ{TID: 1, RequestID: ids, ServiceID: 9}
			copy(query.Private[:], head[:])
			for _, msg := range []Message{&REQ{TID: 1, LocalID: ids, ServiceID: 9, QPN: 100 + ids, PathMTU: 1, Private: head}, query} {
				var m MAD
				if err := msg.Put(&m); err != nil {
					t.Fatal(err)
				}
				heard := len(p.heard[p.b])
				if err := p.b.Receive(p.now, src, m[:]); err != nil {
					t.Fatal(err)
				}
				var got *Listener
				if len(p.heard[p.b]) > heard {
					got = p.last(p.b).Listener
				}
				if got != want {
					t.Errorf("UDP ports %v: a %v that arrives at %v and says %v reached %+v, want %+v", far, msg.Attr(), arrives, says, got, want)
				}
			}
		}
		three := verbs.GIDFromAddr(netip.MustParseAddr("10.9.1.1"))
		for _, gid := range []verbs.GID{one, two, three} {
			asks(gid, gid, at[gid])
			if far {
				asks(gid, one, at[gid])
			}
		}
		at[two].Close()
		asks(two, two, nil)
		asks(one, one, at[one])
		at[one].Close()
		anywhere := must.Get(p.b.ListenAt(9, verbs.GID{}, 0, 0, nil))(t)
		asks(three, three, anywhere)
		if far {
			asks(verbs.GID{}, one, anywhere) // a socket that does not report the address
		}
	}
}
