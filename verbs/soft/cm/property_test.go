package cm

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledger is a consumer's record of one connection.
type ledger struct {
	node                                        *simNode
	conn                                        *Conn
	established, disconnected, terminal, gaveUp int
	closed                                      bool // by the consumer
	answered                                    bool // passive: the request is answered
	passive                                     bool
}

// chaos is two machines with consumers that act at random, on a link that loses, doubles and delays
// datagrams.
type chaos struct {
	*sim
	t     *rapid.T
	rng   *rand.Rand
	a, b  *simNode
	all   []*ledger
	of    map[*Conn]*ledger
	qpn   uint32
	final bool // consumers accept nothing and end everything
}

const chaosService = 42

// fault is the fault rates of the link. A gentle one never loses two in a row of the same kind and
// direction, so that retries always succeed.
type fault struct {
	loss, dup float64
	delay     time.Duration
	gentle    bool
	far       bool // between processes: addresses must be proven
}

func newChaos(t *rapid.T, f fault) *chaos {
	return newChaosSeed(t, f, rapid.Uint64().Draw(t, "seed"))
}

func newChaosSeed(t *rapid.T, f fault, seed uint64) *chaos {
	c := &chaos{sim: newSim(), t: t, rng: rand.New(rand.NewPCG(seed, 1)), of: map[*Conn]*ledger{}, qpn: 2}
	lost := map[[2]any]bool{}
	c.fate = func(from, _ *simNode, m *MAD) []time.Duration {
		d := func() time.Duration { return time.Duration(c.rng.Int64N(int64(f.delay))) + 1 }
		key := [2]any{from, [2]uint32{uint32(get16(m, offAttr)), get32(m, offBody)}}
		if c.rng.Float64() < f.loss && (!f.gentle || !lost[key]) {
			lost[key] = true
			return nil
		}
		lost[key] = false
		if c.rng.Float64() < f.dup {
			return []time.Duration{d(), d()}
		}
		return []time.Duration{d()}
	}
	c.a = c.node("A", Config{}, seed, c.event)
	c.b = c.node("B", Config{}, seed, c.event)
	if f.far {
		c.a.at.LocalPort, c.b.at.LocalPort = chaosService, chaosService
	}
	for _, n := range c.nodes {
		if _, err := n.Listen(chaosService, 4, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *chaos) add(n *simNode, conn *Conn, passive bool) *ledger {
	l := &ledger{node: n, conn: conn, passive: passive}
	c.all = append(c.all, l)
	c.of[conn] = l
	return l
}

func (c *chaos) event(n *simNode, e Event) {
	if e.Kind == EvRequest {
		l := c.add(n, e.Conn, true)
		if c.final {
			c.answer(l, 1)
		} else if c.rng.IntN(2) == 0 {
			c.answer(l, c.rng.IntN(3))
		}
		return
	}
	l := c.of[e.Conn]
	switch {
	case l == nil || l.node != n:
		c.t.Fatalf("%s: %v of a connection that it does not know", n.name, e.Kind)
	case l.closed:
		c.t.Fatalf("%s: %v after the connection was closed", n.name, e.Kind)
	case l.terminal > 0:
		c.t.Fatalf("%s: %v after the terminal event", n.name, e.Kind)
	}
	switch e.Kind {
	case EvReply:
		if c.final || c.rng.IntN(10) == 0 {
			c.close(l)
			return
		}
		if err := e.Conn.SendRTU(c.now, nil); err != nil {
			c.t.Fatal(err)
		}
		l.established++
	case EvEstablished:
		l.established++
		if c.final {
			c.close(l)
		}
	case EvDisconnected:
		l.disconnected++
		if e.Timeout {
			l.gaveUp++
		}
		if e.Conn.State() == StateDREQRcvd {
			if err := e.Conn.SendDREP(c.now, nil); err != nil {
				c.t.Fatal(err)
			}
		}
	case EvRejected, EvUnreachable, EvTimewaitExit:
		l.terminal++
		l.answered = true
		if (e.Kind == EvTimewaitExit) != (l.disconnected == 1) {
			c.t.Fatalf("%v after %d DISCONNECTED: only what was disconnected leaves TIMEWAIT", e.Kind, l.disconnected)
		}
	}
	if l.established > 1 || l.disconnected > 1 {
		c.t.Fatalf("%s: ESTABLISHED %d times, DISCONNECTED %d times", n.name, l.established, l.disconnected)
	}
}

func (c *chaos) close(l *ledger) {
	l.closed, l.answered = true, true
	l.conn.Close(c.now)
}

func (c *chaos) answer(l *ledger, how int) {
	if l.answered || l.closed {
		return
	}
	l.answered = true
	var err error
	switch how {
	case 0:
		c.qpn++
		err = l.conn.Accept(c.now, &AcceptParam{QPN: c.qpn})
	case 1:
		l.closed = true // a rejected connection gets no event either
		err = l.conn.Reject(c.now, RejConsumer, nil)
	case 2:
		c.close(l)
	}
	if err != nil {
		c.t.Fatalf("answer %d in %v: %v", how, l.conn.State(), err)
	}
}

// act does one random action.
func (c *chaos) act() {
	if len(c.all) == 0 || c.rng.IntN(3) == 0 {
		from, to := c.a, c.b
		if c.rng.IntN(4) == 0 {
			from, to = to, from
		}
		if c.rng.IntN(10) == 0 {
			to = from // to itself
		}
		c.qpn++
		conn, err := from.Connect(c.now, &ConnectParam{Dst: to.at, ServiceID: chaosService, QPN: c.qpn}, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.add(from, conn, false)
		return
	}
	l := c.all[c.rng.IntN(len(c.all))]
	switch c.rng.IntN(6) {
	case 0, 1:
		if l.passive {
			c.answer(l, 0)
		}
	case 2:
		if l.passive {
			c.answer(l, 1)
		}
	case 3:
		if l.established == 1 && l.terminal == 0 && !l.closed {
			if err := l.conn.Disconnect(c.now, nil); err != nil {
				c.t.Fatalf("Disconnect of what was established, in %v: %v", l.conn.State(), err)
			}
		}
	case 4:
		if c.rng.IntN(3) == 0 {
			c.close(l)
		}
	case 5:
		// Data can only come from a peer that has the REP.
		if peer := c.find(l.conn.peer).byLocal[l.conn.remote]; l.passive && peer != nil && peer.State() == StateEstablished {
			l.conn.Established()
		}
	}
}

// live does random actions and advances the time after each.
func (c *chaos) live(actions int) {
	for range actions {
		c.act()
		c.run(c.now + time.Duration(c.rng.Int64N(int64(80*time.Millisecond))))
	}
}

// end closes or disconnects everything, with the link as it is, and checks that nothing is left.
func (c *chaos) end() {
	c.final = true
	for _, l := range append([]*ledger(nil), c.all...) {
		switch {
		case l.terminal > 0 || l.closed:
		case l.passive && !l.answered:
			c.answer(l, 1)
		case l.established == 1:
			if err := l.conn.Disconnect(c.now, nil); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.run(c.now + 10*time.Minute)
	if _, more := c.next(); more {
		c.t.Fatalf("after ten minutes something is still to happen")
	}
	for _, n := range c.nodes {
		if n.Conns() != 0 || len(n.byRemote) != 0 || len(n.byQPN) != 0 || n.listeners[chaosService][0].pending != 0 {
			c.t.Fatalf("%s keeps %d connections, %d by remote ID, %d by queue pair, %d pending", n.name,
				n.Conns(), len(n.byRemote), len(n.byQPN), n.listeners[chaosService][0].pending)
		}
		if n.stats.Malformed != 0 {
			c.t.Fatalf("%s received %d malformed datagrams", n.name, n.stats.Malformed)
		}
	}
	for _, l := range c.all {
		if !l.closed && l.terminal != 1 {
			c.t.Fatalf("%s: passive %v: %d terminal events, want 1 (ESTABLISHED %d, DISCONNECTED %d)", l.node.name, l.passive, l.terminal, l.established, l.disconnected)
		}
	}
}

// TestChaos checks that every connection gets its terminal event exactly once and none is left, on
// any link.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, fault{
			loss: rapid.Float64Range(0, 0.6).Draw(t, "loss"), dup: rapid.Float64Range(0, 0.5).Draw(t, "dup"),
			delay: time.Duration(rapid.IntRange(1, 500).Draw(t, "delay ms")) * time.Millisecond,
			far:   rapid.Bool().Draw(t, "far"),
		})
		c.live(rapid.IntRange(1, 60).Draw(t, "actions"))
		c.end()
	})
}

// TestAgreement checks that on a gentle link both ends agree: a connection that is established on
// one end is established on the other.
func TestAgreement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, fault{
			loss: rapid.Float64Range(0, 0.5).Draw(t, "loss"), dup: 0.2, delay: 40 * time.Millisecond, gentle: true,
			far: rapid.Bool().Draw(t, "far"),
		})
		c.live(rapid.IntRange(1, 60).Draw(t, "actions"))
		c.run(c.now + time.Minute)
		for _, l := range c.all {
			if l.conn.State() != StateEstablished {
				continue
			}
			peer := c.find(l.conn.peer).byLocal[l.conn.remote]
			if peer == nil || peer.State() != StateEstablished || peer.remote != l.conn.local {
				t.Fatalf("%s: %v is established, its peer is %v", l.node.name, l.conn, peer)
			}
		}
		c.end()
	})
}

// TestDeterministic checks that the same seed gives the same datagrams at the same times.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, actions := rapid.Uint64().Draw(t, "run"), rapid.IntRange(1, 60).Draw(t, "actions")
		var traces [2]strings.Builder
		for i := range traces {
			c := newChaosSeed(t, fault{loss: 0.3, dup: 0.3, delay: 200 * time.Millisecond}, seed)
			c.trace = func(format string, a ...any) {
				fmt.Fprintf(&traces[i], "%v %s\n", c.now, fmt.Sprintf(format, a...))
			}
			c.live(actions)
			c.end()
		}
		if a, b := traces[0].String(), traces[1].String(); a != b {
			t.Fatalf("first\n%s\nthen\n%s", a, b)
		}
	})
}
