package cm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// asker is a machine that has asked for connections.
func asker(t testing.TB, event func(Event), paths ...wire.Path) *Machine {
	t.Helper()
	m := must.Get(New(Config{Send: func(wire.Path, *MAD, bool) {}, Event: event, Rand: rand.Uint64}))(t)
	for i, p := range paths {
		must.Get(m.Connect(1, &ConnectParam{Dst: p, ServiceID: 1, QPN: uint32(i + 2), MTU: verbs.MTU1024}, i))(t)
	}
	return m
}

// refusal returns the beginning of the datagram of a request.
func refusal(c *Conn) []byte { return binary.BigEndian.AppendUint64(make([]byte, offTID), c.tid) }

// Rule: a path that meets no socket ends the requests by it, from whichever address of this end, and no others, if the
// report quotes the transaction ID of one of them. The machine does not keep requests that have ended.
func TestARefusalEndsTheRequestsOfItsPath(t *testing.T) {
	at := func(s string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	to := wire.Path{Peer: at("10.0.0.9"), PeerPort: 7, LocalPort: 7471}
	from, other := to, to
	from.Local, other.PeerPort = at("10.0.0.1"), 8
	var ended []int
	m := asker(t, func(e Event) {
		if e.Kind == EvRejected && e.REJ.Reason == RejInvalidServiceID {
			ended = append(ended, e.Conn.User.(int))
		}
	}, to, from, other)
	var all []*Conn
	for c := range m.asking[to] {
		all = append(all, c)
	}
	m.Refused(&to, nil)
	m.Refused(&to, refusal(all[0])[:offTID+7])
	m.Refused(&to, refusal(&Conn{tid: all[0].tid + 1}))
	if len(ended) != 0 {
		t.Errorf("reports that quote no transaction ID of a request ended %v", ended)
	}
	m.Refused(&to, refusal(all[0]))
	if len(ended) != 2 || ended[0]+ended[1] != 1 {
		t.Errorf("the requests %v ended, want 0 and 1", ended)
	}
	if len(m.asking) != 1 || len(m.asking[other]) != 1 {
		t.Errorf("kept: %v, want the other path", m.asking)
	}
	m.Refused(&to, refusal(all[0]))
	if len(ended) != 2 {
		t.Errorf("a second refusal ended %v", ended[2:])
	}
}

// BenchmarkRefused measures a refusal of a path without requests, which any stranger can cause, by the number of
// requests by other paths.
func BenchmarkRefused(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var paths []wire.Path
			for i := range n {
				paths = append(paths, wire.Path{Peer: verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.9")), PeerPort: uint16(i + 1), LocalPort: 7471})
			}
			m := asker(b, func(Event) {}, paths...)
			p := wire.Path{Peer: verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.8")), PeerPort: 99, LocalPort: 7471}
			for b.Loop() {
				m.Refused(&p, refusal(&Conn{}))
			}
		})
	}
}
