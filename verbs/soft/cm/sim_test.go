package cm

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// simPacket is a datagram in flight.
type simPacket struct {
	at       time.Duration
	seq      uint64
	from, to *simNode
	mad      MAD
}

type simWire []*simPacket

func (w simWire) Len() int { return len(w) }
func (w simWire) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].seq < w[j].seq
}
func (w simWire) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *simWire) Push(x any)   { *w = append(*w, x.(*simPacket)) }
func (w *simWire) Pop() any {
	o := *w
	p := o[len(o)-1]
	*w = o[:len(o)-1]
	return p
}

// sim is a network of machines on virtual time. fate decides about each datagram: one delay per
// copy that arrives, none when it is lost.
type sim struct {
	now   time.Duration
	seq   uint64
	wire  simWire
	nodes []*simNode
	fate  func(from, to *simNode, m *MAD) []time.Duration
	trace func(format string, a ...any)
}

// simNode is a machine and its consumer.
type simNode struct {
	*Machine
	sim  *sim
	name string
	at   wire.Path
	on   func(n *simNode, e Event)
}

func newSim() *sim {
	return &sim{
		fate:  func(_, _ *simNode, _ *MAD) []time.Duration { return []time.Duration{simHop} },
		trace: func(string, ...any) {},
	}
}

// simHop is the delay of a datagram.
const simHop = time.Millisecond

func (s *sim) node(name string, cfg Config, seed uint64, on func(n *simNode, e Event)) *simNode {
	n := &simNode{sim: s, name: name, on: on}
	n.at.Peer[0], n.at.Peer[15] = 0xfe, byte(len(s.nodes)+1)
	rng := rand.New(rand.NewPCG(seed, uint64(len(s.nodes))))
	cfg.GID, cfg.GUID = n.at.Peer, 0xa0+uint64(len(s.nodes))
	cfg.Rand = rng.Uint64
	cfg.Send = n.transmit
	cfg.Event = func(e Event) { n.on(n, e) }
	m, err := New(cfg)
	if err != nil {
		panic(err)
	}
	n.Machine = m
	s.nodes = append(s.nodes, n)
	return n
}

func (s *sim) find(at wire.Path) *simNode {
	for _, n := range s.nodes {
		if n.at == at {
			return n
		}
	}
	return nil
}

func (n *simNode) transmit(dst wire.Path, m *MAD, _ bool) {
	s := n.sim
	to := s.find(dst)
	var copies []time.Duration
	if to != nil {
		copies = s.fate(n, to, m)
	}
	msg, err := Parse(m[:])
	if err != nil {
		panic(fmt.Sprintf("%s sent what cannot be parsed: %v", n.name, err))
	}
	s.trace("%s sends %s%s", n.name, describe(msg), [...]string{" (lost)", "", " (twice)"}[min(len(copies), 2)])
	for _, d := range copies {
		s.seq++
		heap.Push(&s.wire, &simPacket{at: s.now + d, seq: s.seq, from: n, to: to, mad: *m})
	}
}

// describe formats a message without its random numbers.
func describe(msg Message) string {
	switch m := msg.(type) {
	case *REJ:
		return fmt.Sprintf("REJ of %s, reason %d%s", [...]string{"REQ", "REP", "other"}[m.Answers], m.Reason, text(m.Private[:]))
	case *REQ:
		return "REQ" + text(m.Private[:])
	case *REP:
		return "REP" + text(m.Private[:])
	case *MRA:
		return fmt.Sprintf("MRA of %s", [...]string{"REQ", "REP", "other"}[m.Answers])
	}
	return msg.Attr().String()
}

func text(b []byte) string {
	s := strings.TrimRight(string(b), "\x00")
	if s == "" {
		return ""
	}
	return fmt.Sprintf(" %q", s)
}

// next returns the time of the next event; ok is false if there is none.
func (s *sim) next() (t time.Duration, ok bool) {
	if len(s.wire) > 0 {
		t, ok = s.wire[0].at, true
	}
	for _, n := range s.nodes {
		if d := n.Next(); d != 0 && (!ok || d < t) {
			t, ok = d, true
		}
	}
	return t, ok
}

// step delivers one datagram, or else lets the timers expire, at the time of the next event.
func (s *sim) step() bool {
	t, ok := s.next()
	if !ok {
		return false
	}
	s.now = max(s.now, t)
	if len(s.wire) > 0 && s.wire[0].at <= s.now {
		p := heap.Pop(&s.wire).(*simPacket)
		if err := p.to.Receive(s.now, p.from.at, p.mad[:]); err != nil {
			panic(fmt.Sprintf("%s got what cannot be parsed: %v", p.to.name, err))
		}
		return true
	}
	for _, n := range s.nodes {
		n.Progress(s.now)
	}
	return true
}

// run runs the network until a time.
func (s *sim) run(until time.Duration) {
	for {
		t, ok := s.next()
		if !ok || t > until {
			break
		}
		s.step()
	}
	s.now = max(s.now, until)
}
