package cm

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: between processes, a machine sends to an address at most three times as many datagrams as came
// from there, whatever its consumer does, until the address is proven.
func TestForgedRequestsAreNotAmplified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim()
		sent, received := 0, 0
		var held []*Conn
		answer := func(c *Conn) {
			var err error
			switch rapid.SampledFrom([]string{"accept", "accept", "reject", "close", "hold"}).Draw(t, "answer") {
			case "accept":
				if c.State() == StateSIDRREQRcvd {
					err = c.Answer(s.now, SIDRSuccess, 5, 6, nil)
				} else {
					err = c.Accept(s.now, &AcceptParam{QPN: 5})
				}
			case "reject":
				err = c.Reject(s.now, RejConsumer, nil)
			case "close":
				c.Close(s.now)
			case "hold":
				held = append(held, c)
			}
			var state *StateError
			if err != nil && !errors.As(err, &state) { // a held one may be over
				t.Fatal(err)
			}
		}
		b := s.node("B", Config{}, 1, func(n *simNode, e Event) {
			if e.Kind == EvRequest || e.Kind == EvSIDRRequest {
				answer(e.Conn)
			}
		})
		if _, err := b.Listen(7, 2, nil); err != nil {
			t.Fatal(err)
		}
		victim := s.node("victim", Config{}, 2, nil)
		victim.at.PeerPort, victim.at.LocalPort = 9, 7
		s.fate = func(from, _ *simNode, _ *MAD) []time.Duration {
			if from == b {
				sent++
			}
			return nil // the victim knows nothing of it
		}
		kinds := []string{"REQ"} // what is refused at once leaves a margin
		if rapid.Bool().Draw(t, "others too") {
			kinds = append(kinds, "SIDR_REQ", "DREQ", "RTU")
		}
		for range rapid.IntRange(1, 10).Draw(t, "datagrams") {
			var m MAD
			id := uint32(rapid.IntRange(1, 2).Draw(t, "ID"))
			var msg Message
			switch rapid.SampledFrom(kinds).Draw(t, "message") {
			case "REQ":
				msg = &REQ{LocalID: id, QPN: 10 + id, ServiceID: 7, Transport: TransportRC, PathMTU: 3, MaxCMRetries: 15}
			case "SIDR_REQ":
				msg = &SIDRREQ{RequestID: id, ServiceID: 7}
			case "DREQ":
				msg = &DREQ{LocalID: id, RemoteID: 99}
			case "RTU":
				msg = &RTU{LocalID: id, RemoteID: 99}
			}
			if err := msg.Put(&m); err != nil {
				t.Fatal(err)
			}
			received++
			if err := b.Receive(s.now, victim.at, m[:]); err != nil {
				t.Fatal(err)
			}
			s.run(s.now + time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms"))*time.Millisecond)
			if len(held) > 0 {
				c := held[0]
				held = held[1:]
				answer(c)
			}
			if sent > amplification*received {
				t.Fatalf("%d datagrams were sent for %d", sent, received)
			}
		}
		s.run(s.now + time.Hour)
		if sent > amplification*received {
			t.Fatalf("%d datagrams were sent for %d", sent, received)
		}
	})
}

// Rule: an active side whose passive side has given up learns it, even if nothing could be sent there any more:
// it answers the late REP with an RTU, and that is answered with a DREQ or a REJ.
func TestNoHalfConnectionAfterAStall(t *testing.T) {
	for _, stall := range []time.Duration{500 * time.Millisecond, 1100 * time.Millisecond, 1500 * time.Millisecond, 2200 * time.Millisecond, 3 * time.Second} {
		s := newSim()
		ended := false
		a := s.node("A", Config{}, 1, func(n *simNode, e Event) {
			switch e.Kind {
			case EvReply:
				if err := e.Conn.SendRTU(s.now, nil); err != nil {
					t.Fatal(err)
				}
			case EvDisconnected:
				ended = true
				if e.Conn.State() == StateDREQRcvd {
					if err := e.Conn.SendDREP(s.now, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
		a.at.LocalPort = 7
		gaveUp := false
		var asked *Conn
		b := s.node("B", Config{}, 2, func(n *simNode, e Event) {
			switch e.Kind {
			case EvRequest:
				asked = e.Conn
			case EvUnreachable:
				gaveUp = true
			}
		})
		if _, err := b.Listen(7, 0, nil); err != nil {
			t.Fatal(err)
		}
		// The first REP arrives late, the others do not.
		reps := 0
		s.fate = func(from, _ *simNode, m *MAD) []time.Duration {
			if Attr(get16(m, offAttr)) == AttrREP {
				if reps++; reps > 1 {
					return nil
				}
				return []time.Duration{stall}
			}
			return []time.Duration{simHop}
		}
		c, err := a.Connect(s.now, &ConnectParam{Dst: b.at, ServiceID: 7, QPN: 4}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.run(200 * time.Millisecond) // A has repeated the REQ, and got an MRA: it is patient
		if err := asked.Accept(s.now, &AcceptParam{QPN: 5}); err != nil {
			t.Fatal(err)
		}
		s.run(time.Minute)
		if one, other := c.State() == StateEstablished, b.Conns() == 1; one != other || one == gaveUp || ended != gaveUp {
			t.Errorf("stalled for %v: A is %v, B has %d connections; B gave up: %v, A was told: %v", stall, c, b.Conns(), gaveUp, ended)
		}
	}
}

// Rule: an RTU that is lost, after the last REP that the passive side may send, comes again.
func TestLostRTUWithoutMoreREPs(t *testing.T) {
	s := newSim()
	a := s.node("A", Config{}, 1, func(n *simNode, e Event) {
		if e.Kind == EvReply {
			if err := e.Conn.SendRTU(s.now, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	a.at.LocalPort = 7
	var passive *Conn
	b := s.node("B", Config{}, 2, func(n *simNode, e Event) {
		if e.Kind == EvRequest {
			passive = e.Conn
			if err := e.Conn.Accept(s.now, &AcceptParam{QPN: 5}); err != nil {
				t.Fatal(err)
			}
		}
	})
	b.at.LocalPort = 7
	if _, err := b.Listen(7, 0, nil); err != nil {
		t.Fatal(err)
	}
	reps, rtus := 0, 0
	s.fate = func(_, _ *simNode, m *MAD) []time.Duration {
		switch Attr(get16(m, offAttr)) {
		case AttrREP:
			if reps++; reps != amplification {
				return nil
			}
		case AttrRTU:
			if rtus++; rtus == 1 {
				return nil
			}
		}
		return []time.Duration{simHop}
	}
	if _, err := a.Connect(s.now, &ConnectParam{Dst: b.at, ServiceID: 7, QPN: 4}, nil); err != nil {
		t.Fatal(err)
	}
	s.run(time.Minute)
	if passive == nil || passive.State() != StateEstablished || rtus != 2 {
		t.Errorf("after %d REPs and %d RTUs the passive side is %v, want two RTUs, ESTABLISHED", reps, rtus, passive)
	}
}

// Rule: a peer that has proven its address is informed as persistently as any.
func TestProvenAddressIsNotLimited(t *testing.T) {
	s := newSim()
	var passive *Conn
	a := s.node("A", Config{}, 1, func(n *simNode, e Event) {
		if e.Kind == EvReply {
			if err := e.Conn.SendRTU(s.now, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	a.at.LocalPort = 7
	b := s.node("B", Config{}, 2, func(n *simNode, e Event) {
		if e.Kind == EvRequest {
			passive = e.Conn
			if err := e.Conn.Accept(s.now, &AcceptParam{QPN: 5}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if _, err := b.Listen(7, 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Connect(s.now, &ConnectParam{Dst: b.at, ServiceID: 7, QPN: 4}, nil); err != nil {
		t.Fatal(err)
	}
	s.run(time.Second)
	if passive == nil || passive.State() != StateEstablished {
		t.Fatalf("the connection is %v", passive)
	}
	sent := 0
	s.fate = func(from, _ *simNode, _ *MAD) []time.Duration {
		if from == b {
			sent++
		}
		return nil
	}
	if err := passive.Disconnect(s.now, nil); err != nil {
		t.Fatal(err)
	}
	s.run(s.now + time.Minute)
	if want := 1 + defaultMaxRetries; sent != want {
		t.Fatalf("%d DREQs were sent, want %d", sent, want)
	}
}

// Rule: what answers a REQ goes to a stranger, until a datagram has named the ID of this side. The side that has asked
// knows no strangers.
func TestWhoAsksIsAStranger(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	strangers := map[string][]bool{} // by sender and message
	for _, n := range []*simNode{p.a, p.b} {
		n.cfg.Send = func(dst wire.Path, m *MAD, stranger bool) {
			what := n.name + ": " + must.Get(Parse(m[:]))(t).Attr().String()
			strangers[what] = append(strangers[what], stranger)
			n.transmit(dst, m, stranger)
		}
	}
	c := p.connect(t, ConnectParam{QPN: 5})
	p.run(time.Second)
	must.Do(t, c.Disconnect(p.now, nil))
	p.run(2 * time.Second)
	must.Get(p.a.Connect(p.now, &ConnectParam{Dst: p.b.at, ServiceID: 99, QPN: 6}, nil))(t)
	p.run(3 * time.Second)
	want := map[string][]bool{
		"A: REQ": {false, false}, "B: REP": {true}, "A: RTU": {false}, "A: DREQ": {false}, "B: DREP": {false}, "B: REJ": {true},
	}
	if !maps.EqualFunc(strangers, want, slices.Equal) {
		t.Errorf("datagrams went to strangers: %v, want %v", strangers, want)
	}
}
