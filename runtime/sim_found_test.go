package runtime

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Each test of this file is a regression test for a bug of this package that the simulation found.

// simConnected connects two nodes of a new simulation without random disturbances. It returns the
// simulation, the dialing end a and the accepted end b. The simulation ends with the test.
func simConnected(t *testing.T) (w *simWorld, a, b *Conn) {
	t.Helper()
	notOnDevice(t, "the test needs virtual time")
	w = newSimWorld(1, 0)
	t.Cleanup(func() {
		for _, c := range []*Conn{a, b} {
			if c != nil {
				c.Abort()
			}
		}
		w.finish()
	})
	l := w.nodes[1].ln[0]
	accepting, err := l.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	dialing := must.Get(w.nodes[0].rt.DialAsync(w.ended, l.Addr().String(), Options{RecvCredits: 8, SendDepth: 8, MessageSize: simMsgSize}))(t)
	w.pass(time.Second)
	if a, err, _ = dialing.Poll(); err != nil || a == nil {
		t.Fatalf("dialing: connection %v, error %v, want a connection", a, err)
	}
	if b, err, _ = accepting.Poll(); err != nil || b == nil {
		t.Fatalf("accepting: connection %v, error %v, want a connection", b, err)
	}
	return w, a, b
}

// pass advances virtual time by d, and runs all reactors and devices meanwhile. It does not collect
// results.
func (w *simWorld) pass(d time.Duration) {
	for until := w.now() + d; ; w.advance(until - w.now()) {
		for n := 0; n < 50 && w.turn(); n++ {
		}
		if w.now() >= until {
			return
		}
	}
}

// Rule: if the future of a Recv is discarded, the message for this Recv goes to the next Recv, before
// all later messages. (The bug: if a later message arrived in the same pass, the later message was
// delivered first.)
func TestDiscardedRecvKeepsOrder(t *testing.T) {
	w, a, b := simConnected(t)
	b.Recv().Discard()
	asked := []futures.Future[Message]{b.Recv(), b.Recv()}
	w.pass(time.Millisecond)
	for i := range asked {
		if _, err := a.SendBytes(w.ended, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	w.pass(time.Millisecond)
	for i, f := range asked {
		m, err, ok := f.Poll()
		if !ok || err != nil || m.Data[0] != byte(i) {
			t.Errorf("Recv %d got the message %v (settled %t, error %v), want the message [%d]", i, m.Data, ok, err, i)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Rule: if the queue pair of a connection is in ERR, the connection fails, even if no event reports
// the reason. (The bug: the connection stayed open while all its operations failed.)
func TestConnectionFailsWithItsQueuePair(t *testing.T) {
	w, a, _ := simConnected(t)
	if err := a.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil {
		t.Fatal(err)
	}
	f := must.Get(a.SendBytes(w.ended, []byte("x")))(t)
	w.pass(2 * causeBound)
	var wc *verbs.WCError
	if _, err, ok := f.Poll(); !ok || !errors.As(err, &wc) || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the send ended with %v (settled %t), want %v", err, ok, verbs.WCWRFlushErr)
	}
	if err := a.Err(); !errors.Is(err, ErrQueuePair) {
		t.Errorf("the connection ended with %v, want %v", err, ErrQueuePair)
	}
}

// Rule: if a PacketConn is closed, its calls of Resolve that are in progress end with ErrConnClosed.
// (The bug: a Resolve continued after the PacketConn was closed, and the runtime could not be closed.)
func TestPacketConnEndsItsQuestions(t *testing.T) {
	notOnDevice(t, "the test needs virtual time")
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	n := w.nodes[0]
	w.partition(0, time.Minute)
	r := &resolving{p: n.packets.p, ways: []addrResolver{{src: netip.AddrPortFrom(n.rt.addr, 0), dst: w.nodes[1].packets.p.Addr()}}}
	var f futures.Future[*Peer]
	r.promise, f = n.rt.peers.New(nil)
	r.p.sh.r.Defer(r.start)
	w.pass(time.Millisecond)
	n.packets.end()
	w.pass(time.Millisecond)
	if _, err, ok := f.Poll(); !ok || !errors.Is(err, ErrConnClosed) {
		t.Errorf("Resolve ended with %v (settled %t), want %v", err, ok, ErrConnClosed)
	}
	if len(n.packets.p.asking) != 0 {
		t.Error("after the end of Resolve, PacketConn.asking still contains the Resolve")
	}
}

// Rule: if no answer comes, joining a multicast group fails after ConnectTimeout. Afterwards the group
// can be joined.
func TestJoiningAGroupEndsUnanswered(t *testing.T) {
	notOnDevice(t, "the test needs virtual time")
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	p := w.nodes[0].packets.p
	group := netip.MustParseAddr("239.7.7.7")
	// join(true) joins the group. join(false) also prevents the delivery of the event that has the answer.
	join := func(answered bool) (error, bool) {
		m := &membership{p: p, group: group, key: verbs.GIDFromAddr(group)}
		var f futures.Future[*Peer]
		m.promise, f = p.rt.peers.New(nil)
		p.sh.r.Defer(func() {
			m.start()
			if !answered {
				delete(p.sh.targets, m.id)
			}
		})
		w.pass(2 * DefaultConnectTimeout)
		_, err, ok := f.Poll()
		return err, ok
	}
	if err, ok := join(false); !ok || !errors.Is(err, ErrConnectTimeout) {
		t.Errorf("joining without an answer: %v (settled %t), want %v", err, ok, ErrConnectTimeout)
	}
	if err, ok := join(true); !ok || err != nil {
		t.Errorf("joining with an answer: %v (settled %t), want success", err, ok)
	}
	if p.groups[verbs.GIDFromAddr(group)] == nil {
		t.Error("the group was joined, but ConnectTimeout ended the membership")
	}
}
