package cm

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// pair is two machines whose consumers record their events.
type pair struct {
	*sim
	a, b  *simNode
	heard map[*simNode][]Event
	hold  bool // B does not answer
}

func newPair(t *testing.T, ca, cb Config) *pair {
	t.Helper()
	p := &pair{sim: newSim(), heard: map[*simNode][]Event{}}
	on := func(n *simNode, e Event) {
		p.heard[n] = append(p.heard[n], e)
		var err error
		switch {
		case e.Kind == EvRequest && !p.hold:
			err = e.Conn.Accept(p.now, &AcceptParam{QPN: 77})
		case e.Kind == EvReply:
			err = e.Conn.SendRTU(p.now, nil)
		case e.Kind == EvDisconnected && e.Conn.State() == StateDREQRcvd:
			err = e.Conn.SendDREP(p.now, nil)
		}
		if err != nil {
			t.Error(err)
		}
	}
	p.a, p.b = p.node("A", ca, 1, on), p.node("B", cb, 1, on)
	if _, err := p.b.Listen(7, 0, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) connect(t *testing.T, cp ConnectParam) *Conn {
	t.Helper()
	cp.Dst, cp.ServiceID = p.b.at, 7
	if cp.QPN == 0 {
		cp.QPN = 55
	}
	c := must.Get(p.a.Connect(p.now, &cp, nil))(t)
	return c
}

func (p *pair) last(n *simNode) Event {
	if h := p.heard[n]; len(h) > 0 {
		return h[len(h)-1]
	}
	return Event{}
}

// TestParametersTravel checks that each side gets the parameters of the other.
func TestParametersTravel(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	p.connect(t, ConnectParam{QPN: 0x123, PSN: 0xabcdef, ResponderResources: 3, InitiatorDepth: 4, RetryCount: 5,
		RNRRetry: 6, FlowControl: true, SRQ: true, MTU: verbs.MTU512, AckTimeout: 17, PKey: 0xffff, Private: []byte("hi")})
	p.run(time.Second)
	q := p.heard[p.b][0].REQ
	if q.QPN != 0x123 || q.PSN != 0xabcdef || q.ResponderResources != 3 || q.InitiatorDepth != 4 || q.RetryCount != 5 ||
		q.RNRRetry != 6 || !q.FlowControl || !q.SRQ || q.PathMTU != 2 || q.Primary.AckTimeout != 17 || string(q.Private[:2]) != "hi" {
		t.Errorf("the request arrived as %+v", q)
	}
	r := p.heard[p.a][0].REP
	if r == nil || r.QPN != 77 || r.CAGUID != 0xa1 {
		t.Errorf("the reply arrived as %+v", r)
	}
}

// TestRefusals checks the reasons for requests that cannot be served.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(q *REQ)
		reason Reason
	}{
		{"no listener", func(q *REQ) { q.ServiceID = 8 }, RejInvalidServiceID},
		{"not RC", func(q *REQ) { q.Transport = TransportUC }, RejInvalidTransport},
		{"an extended transport that is not XRC", func(q *REQ) { q.Transport, q.ExtTransport = TransportExt, ExtXRC+1 }, RejInvalidTransport},
		{"MTU above the port's", func(q *REQ) { q.PathMTU = 5 }, RejInvalidMTU},
		{"jumbo MTU on an ordinary port", func(q *REQ) { q.PathMTU = mtuJumboCode }, RejInvalidMTU},
		{"reserved MTU", func(q *REQ) { q.PathMTU = 9 }, RejInvalidMTU},
	} {
		p := newPair(t, Config{}, Config{MTU: verbs.MTU1024})
		var got *REJ
		p.a.on = func(_ *simNode, e Event) { got = e.REJ }
		conn := p.connect(t, ConnectParam{MTU: verbs.MTU1024})
		p.wire = nil
		msg := must.Get(Parse(conn.last[:]))(t)
		c.change(msg.(*REQ))
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		p.a.transmit(p.b.at, &m, false)
		p.run(100 * time.Millisecond)
		if got == nil || got.Reason != c.reason {
			t.Errorf("%s: refused with %+v, want reason %d", c.name, got, c.reason)
			continue
		}
		if c.reason == RejInvalidMTU && (got.ARILen != 1 || got.ARI[0] != uint8(verbs.MTU1024)) {
			t.Errorf("%s: additional information %d bytes, %v; want the MTU accepted", c.name, got.ARILen, got.ARI[0])
		}
		if p.b.Conns() != 0 {
			t.Errorf("%s: the refusing side remembers %d connections", c.name, p.b.Conns())
		}
	}
}

// Rule: between processes each side has the largest path MTU of its own route, up to its port's, and the
// passive side refuses a larger one.
func TestFarMTU(t *testing.T) {
	routes := func(m verbs.MTU) Config {
		return Config{MTU: verbs.MTUJumbo, FarMTU: func(p wire.Path) verbs.MTU {
			if !p.Far() {
				t.Error("a path within the process was asked for")
			}
			return m
		}}
	}
	for _, x := range []struct {
		a, b Config
		asks verbs.MTU
		ok   bool
	}{
		{routes(verbs.MTU32768), routes(verbs.MTU32768), verbs.MTU32768, true},
		{routes(verbs.MTU1024), routes(verbs.MTU32768), verbs.MTU1024, true},
		{routes(verbs.MTU8192), routes(verbs.MTU2048), verbs.MTU8192, false},
		{Config{MTU: verbs.MTUJumbo}, routes(verbs.MTU4096), verbs.MTU4096, true}, // without FarMTU
	} {
		p := newPair(t, x.a, x.b)
		p.a.at.LocalPort, p.b.at.LocalPort = 7, 7
		p.connect(t, ConnectParam{})
		p.run(100 * time.Millisecond)
		e := p.last(p.a)
		if x.ok && e.Kind != EvReply || !x.ok && (e.Kind != EvRejected || e.REJ.Reason != RejInvalidMTU || e.REJ.ARI[0] != uint8(verbs.MTU2048)) {
			t.Errorf("%v: %+v", x.asks, e)
		}
		if got := p.heard[p.b]; x.ok && MTUCode(x.asks) != got[0].REQ.PathMTU {
			t.Errorf("asked for MTU code %d, want that of %d", got[0].REQ.PathMTU, x.asks.Bytes())
		}
	}
}

// TestRefusalsLeaveNoGarbage checks that refusing a request without a listener allocates nothing,
// so a flood of them makes no garbage.
func TestRefusalsLeaveNoGarbage(t *testing.T) {
	refused := 0
	p := newPair(t, Config{}, Config{})
	p.b.cfg.Send = func(wire.Path, *MAD, bool) { refused++ }
	var m MAD
	if err := (&REQ{TID: 1, LocalID: 2, ServiceID: 99, QPN: 3, PathMTU: 1, PKey: 0xffff}).Put(&m); err != nil {
		t.Fatal(err)
	}
	const runs = 100
	if n := testing.AllocsPerRun(runs, func() { _ = p.b.Receive(0, p.a.at, m[:]) }); n != 0 {
		t.Errorf("%v allocations for a refused request", n)
	}
	if refused != runs+1 { // plus one warm-up run
		t.Errorf("%d requests were refused, want %d", refused, runs+1)
	}
}

// TestLateCopyOfARefusedRequest: a request refused for its MTU is repeated with a smaller one, for
// the same queue pair; a copy of the first that comes when the second has its connection ends
// nothing.
func TestLateCopyOfARefusedRequest(t *testing.T) {
	p := newPair(t, Config{}, Config{MTU: verbs.MTU1024})
	first := p.connect(t, ConnectParam{MTU: verbs.MTU4096})
	late := first.last
	p.run(50 * time.Millisecond)
	if e := p.last(p.a); e.Kind != EvRejected || e.REJ.Reason != RejInvalidMTU {
		t.Fatalf("the first request: %+v, want it refused for its MTU", e)
	}
	second := p.connect(t, ConnectParam{MTU: verbs.MTU1024})
	p.run(100 * time.Millisecond)
	if second.State() != StateEstablished {
		t.Fatalf("the second request: %v, want it established", second)
	}
	p.a.transmit(p.b.at, &late, false)
	p.run(time.Second)
	if second.State() != StateEstablished || p.b.Conns() != 1 {
		t.Errorf("after a late copy of the first request: %v, the peer has %d connections; want it established", second, p.b.Conns())
	}
}

// TestCloseOvertakesTheReply: the peer accepts and closes at once, and its DREQ arrives before its
// REP. The late REP establishes nothing; both sides forget the connection.
func TestCloseOvertakesTheReply(t *testing.T) {
	for _, patient := range []bool{false, true} { // an MRA came before
		p := newPair(t, Config{}, Config{})
		p.hold = true
		p.fate = func(_, _ *simNode, m *MAD) []time.Duration {
			if Attr(get16(m, offAttr)) == AttrREP {
				return []time.Duration{20 * simHop}
			}
			return []time.Duration{simHop}
		}
		c := p.connect(t, ConnectParam{})
		p.run(p.now + 2*simHop)
		d := p.last(p.b).Conn
		if patient {
			d.sendMRA(AnswersREQ)
			p.run(p.now + 2*simHop)
			if c.State() != StateMRAREQRcvd {
				t.Fatalf("after an MRA: %v", c)
			}
		}
		if err := d.Accept(p.now, &AcceptParam{QPN: 77}); err != nil {
			t.Fatal(err)
		}
		d.Close(p.now)
		p.run(p.now + 10*time.Second)
		if ks := p.kinds(p.a); len(ks) != 1 || ks[0] != EvRejected || p.last(p.a).REJ.Reason != RejTimeout {
			t.Errorf("MRA %v: the active side heard %v, %+v; want REJECTED, a timeout", patient, ks, p.last(p.a).REJ)
		}
		if p.a.Conns() != 0 || p.b.Conns() != 0 {
			t.Errorf("MRA %v: %d and %d connections are left: %v", patient, p.a.Conns(), p.b.Conns(), c)
		}
		if n := len(p.heard[p.b]); n != 1 {
			t.Errorf("MRA %v: the passive side heard %d events, want its one request", patient, n)
		}
	}
}

// TestStates checks that a call that the state does not allow is refused and changes nothing.
func TestStates(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	p.hold = true
	c := p.connect(t, ConnectParam{})
	var se *StateError
	for op, err := range map[string]error{
		"Accept":     c.Accept(p.now, &AcceptParam{QPN: 2}),
		"Reject":     c.Reject(p.now, RejConsumer, nil),
		"SendRTU":    c.SendRTU(p.now, nil),
		"SendDREP":   c.SendDREP(p.now, nil),
		"Disconnect": c.Disconnect(p.now, nil),
	} {
		if !errors.As(err, &se) || !errors.Is(err, ErrState) || se.Op != op || se.State != StateREQSent {
			t.Errorf("%s in REQ_SENT: %v, want a *StateError", op, err)
		}
	}
	p.run(10 * time.Millisecond)
	d := p.heard[p.b][0].Conn
	if err := d.Accept(p.now, &AcceptParam{QPN: 2, Private: make([]byte, PrivateREP+1)}); !errors.Is(err, ErrRange) {
		t.Errorf("Accept with 197 bytes: %v, want ErrRange", err)
	}
	if err := d.Reject(p.now, RejConsumer, make([]byte, PrivateREJ+1)); !errors.Is(err, ErrRange) {
		t.Errorf("Reject with 149 bytes: %v, want ErrRange", err)
	}
	if err := d.Accept(p.now, &AcceptParam{QPN: 1 << 24}); !errors.Is(err, ErrRange) {
		t.Errorf("Accept with a queue pair number of 25 bits: %v, want ErrRange", err)
	}
	if d.State() != StateREQRcvd {
		t.Fatalf("after refused calls the request is in %v", d.State())
	}
	if err := d.Accept(p.now, &AcceptParam{QPN: 2}); err != nil {
		t.Fatal(err)
	}
	p.run(20 * time.Millisecond)
	if err := c.Disconnect(p.now, make([]byte, PrivateDREQ+1)); !errors.Is(err, ErrRange) || c.State() != StateEstablished {
		t.Errorf("Disconnect with 221 bytes: %v in %v, want ErrRange in ESTABLISHED", err, c.State())
	}
	if _, err := p.a.Connect(p.now, &ConnectParam{Dst: p.b.at, QPN: 9, Private: make([]byte, PrivateREQ+1)}, nil); !errors.Is(err, ErrRange) || p.a.Conns() != 1 {
		t.Errorf("Connect with 93 bytes: %v, %d connections; want ErrRange, 1", err, p.a.Conns())
	}
	if _, err := p.a.Connect(p.now, &ConnectParam{Dst: p.b.at, QPN: 9, MTU: 77}, nil); !errors.Is(err, ErrRange) || p.a.Conns() != 1 {
		t.Errorf("Connect with no such MTU: %v, %d connections; want ErrRange, 1", err, p.a.Conns())
	}
}

// TestListen checks that a service has one listener, and is free again after Close.
func TestListen(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	if _, err := p.b.Listen(7, 0, nil); !errors.Is(err, ErrInUse) {
		t.Fatalf("second Listen: %v, want ErrInUse", err)
	}
	l := p.b.listeners[7][0]
	l.Close()
	l2, err := p.b.Listen(7, 0, nil)
	if err != nil {
		t.Fatalf("Listen after Close: %v", err)
	}
	l.Close() // idempotent, and does not close the other one
	if p.b.listeners[7][0] != l2 {
		t.Fatal("closing a closed listener closed its successor")
	}
}

// TestPatience checks that an MRA cannot keep a connection for longer than the bound.
func TestPatience(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil }
	c := p.connect(t, ConnectParam{})
	var m MAD
	if err := (&MRA{TID: c.tid, LocalID: 9, RemoteID: c.local, ServiceTimeout: 31}).Put(&m); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Receive(p.now, p.b.at, m[:]); err != nil {
		t.Fatal(err)
	}
	if limit := codeTime(maxTimeoutCode) + codeTime(defaultResponseTimeout); p.a.Next() > limit || c.State() != StateMRAREQRcvd {
		t.Fatalf("in %v the next deadline is %v, at most %v", c.State(), p.a.Next(), limit)
	}
	before := p.a.Next()
	p.now = before / 2
	if err := p.a.Receive(p.now, p.b.at, m[:]); err != nil || p.a.Next() != before {
		t.Fatalf("a second MRA moved the deadline from %v to %v (%v)", before, p.a.Next(), err)
	}
}

// TestRefusalsDoNotPileUp checks that a peer whose requests under ever new IDs are all refused does
// not fill the memory.
func TestRefusalsDoNotPileUp(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	p.b.on = func(_ *simNode, e Event) { e.Conn.Close(p.now) }
	const asked = 3 * maxRemembered
	for i := range uint32(asked) {
		for _, msg := range []Message{
			&REQ{LocalID: i + 1, ServiceID: 7, QPN: i + 2, PathMTU: 5, RemoteTimeout: 31, LocalTimeout: 31, MaxCMRetries: 15},
			&SIDRREQ{RequestID: i + 1, ServiceID: 7},
		} {
			var m MAD
			if err := msg.Put(&m); err != nil {
				t.Fatal(err)
			}
			if err := p.b.Receive(p.now, p.a.at, m[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if sent := p.b.Stats().Sent; sent != 2*asked {
		t.Errorf("%d answers, want %d", sent, 2*asked)
	}
	if n := p.b.Conns(); n > maxRemembered || len(p.b.byRemote)+len(p.b.bySIDR) != n || len(p.b.byQPN) != 0 {
		t.Errorf("%d refused connections are remembered (%d and %d by remote ID, %d by queue pair), at most %d",
			n, len(p.b.byRemote), len(p.b.bySIDR), len(p.b.byQPN), maxRemembered)
	}
	p.run(time.Minute)
	if p.b.Conns() != 0 || p.b.kept != 0 {
		t.Errorf("in the end %d connections, %d of them counted as refused", p.b.Conns(), p.b.kept)
	}
}

// TestClosedDoesNotWaitAsLongAsThePeerLikes checks that a peer that requests the longest timeouts
// and never answers does not keep a closed connection.
func TestClosedDoesNotWaitAsLongAsThePeerLikes(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	var m MAD
	if err := (&REQ{LocalID: 9, ServiceID: 7, QPN: 9, PathMTU: 5, RemoteTimeout: 31, LocalTimeout: 31, MaxCMRetries: 15}).Put(&m); err != nil {
		t.Fatal(err)
	}
	p.fate = func(_, _ *simNode, _ *MAD) []time.Duration { return nil }
	if err := p.b.Receive(p.now, p.a.at, m[:]); err != nil {
		t.Fatal(err)
	}
	p.last(p.b).Conn.Close(p.now)
	p.run(codeTime(defaultResponseTimeout)*(defaultMaxRetries+1) + defaultTimeWait)
	if n := p.b.Conns(); n != 0 {
		t.Errorf("after %v %d connections are left", p.now, n)
	}
}

func TestConfigRefused(t *testing.T) {
	ok := Config{Send: func(wire.Path, *MAD, bool) {}, Event: func(Event) {}, Rand: rand.New(rand.NewPCG(1, 1)).Uint64}
	for name, change := range map[string]func(c *Config){
		"no Send":         func(c *Config) { c.Send = nil },
		"MTU":             func(c *Config) { c.MTU = 9 },
		"ResponseTimeout": func(c *Config) { c.ResponseTimeout = 25 },
		"MaxRetries":      func(c *Config) { c.MaxRetries = 16 },
		"ServiceTimeout":  func(c *Config) { c.ServiceTimeout = 25 },
		"TimeWait":        func(c *Config) { c.TimeWait = -1 },
	} {
		c := ok
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(ok); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
}

// FuzzMachine checks that the machine does not panic on any input in any state, and that its tables
// stay consistent. The input is a program: pick a datagram, change bytes of it, deliver it, advance
// the time.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte("connect, bend, deliver, wait, connect, bend, deliver, wait"))
	f.Fuzz(func(t *testing.T, prog []byte) {
		prog = prog[:min(len(prog), 512)] // longer ones only take longer
		p := newPair(t, Config{}, Config{})
		if _, err := p.a.Listen(7, 2, nil); err != nil {
			t.Fatal(err)
		}
		var seen []MAD
		p.fate = func(_, _ *simNode, m *MAD) []time.Duration {
			seen = append(seen, *m)
			return []time.Duration{simHop}
		}
		next := func() int {
			if len(prog) == 0 {
				return 0
			}
			b := prog[0]
			prog = prog[1:]
			return int(b)
		}
		for len(prog) > 0 {
			switch next() % 6 {
			case 5:
				if _, err := p.a.Lookup(p.now, &LookupParam{Dst: p.b.at, ServiceID: 7}, nil); err != nil {
					t.Fatal(err)
				}
			case 0:
				p.connect(t, ConnectParam{QPN: uint32(2 + next())})
			case 1:
				p.run(p.now + time.Duration(next())*time.Millisecond)
			case 2:
				for _, n := range p.nodes {
					if ids := slices.Sorted(maps.Keys(n.byLocal)); len(ids) > 0 {
						n.byLocal[ids[0]].Close(p.now)
					}
				}
			default:
				if len(seen) == 0 {
					continue
				}
				m := seen[next()%len(seen)]
				for range next() % 4 {
					m[next()] = byte(next())
				}
				n := p.nodes[next()%2]
				src := p.nodes[next()%2].at
				if err := n.Receive(p.now, src, m[:]); err != nil && !errors.Is(err, ErrMalformed) {
					t.Fatalf("error %v is not ErrMalformed", err)
				}
			}
			for _, n := range p.nodes {
				for _, c := range n.byRemote {
					if n.byLocal[c.local] != c {
						t.Fatalf("%v is known by its peer's ID only", c)
					}
				}
				for _, c := range n.bySIDR {
					if n.byLocal[c.local] != c {
						t.Fatalf("%v is known by its peer's question only", c)
					}
				}
				for _, c := range n.byQPN {
					if n.byLocal[c.local] != c {
						t.Fatalf("%v is known by its queue pair only", c)
					}
				}
				for i, c := range n.timers.h {
					if n.byLocal[c.local] != c || c.timer != i+1 {
						t.Fatalf("%v has a deadline and no place", c)
					}
				}
			}
		}
	})
}
