package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// lineWait is one wait in a line, a list of waits (conn_recv_waits.go). Its owner can give it up.
type lineWait struct {
	nth   int  // position in the order of arrival
	gone  bool // the owner has given the wait up
	ended int  // how many times giveUp was called
}

func (w *lineWait) wanted() bool { return !w.gone }
func (w *lineWait) giveUp()      { w.ended++ }

// Rule: the wanted waits of a line stay in order, whichever other waits are given up. A wait that
// was given up is ended at most one time. After each call of served the length of the line is less
// than max(pruneFrom, 2*kept).
func TestALineKeepsWhoWaitsAndNoMore(t *testing.T) {
	seed := fromEnv(t, "VERBENA_WAITS_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_WAITS_SEED=%d", seed)
	r := newSimRand(seed)
	var line, all []*lineWait
	kept, looks := 0, 0
	for phase := range 40 {
		add, give, serve := r.between(0, 20), r.between(0, 20), r.between(0, 20)
		for range 200 {
			for range r.between(0, add) {
				w := &lineWait{nth: len(all)}
				line, all = append(line, w), append(all, w)
			}
			for range min(r.between(0, give), len(line)) {
				line[r.IntN(len(line))].gone = true
			}
			n := min(r.between(0, serve), len(line))
			before := line[n:]
			var wanted []*lineWait
			for _, w := range before {
				if w.wanted() {
					wanted = append(wanted, w)
				}
			}
			long := len(before)
			line = served(line, n, &kept)
			if len(line) < long {
				looks++
			}
			i := 0
			for k, w := range line {
				if k > 0 && line[k-1].nth >= w.nth || w.ended != 0 {
					t.Fatalf("phase %d: place %d has wait %d, ended %d times", phase, k, w.nth, w.ended)
				}
				if w.wanted() {
					if i == len(wanted) || wanted[i] != w {
						t.Fatalf("phase %d: wait %d is not the next that was wanted", phase, w.nth)
					}
					i++
				}
			}
			if i != len(wanted) {
				t.Fatalf("phase %d: %d waits are left of %d that are wanted", phase, i, len(wanted))
			}
			if most := max(pruneFrom, 2*kept); len(line) >= most {
				t.Fatalf("phase %d: the line has %d places after a look that left %d", phase, len(line), kept)
			}
		}
	}
	for _, w := range all {
		if w.ended > 1 || w.ended == 1 && w.wanted() {
			t.Fatalf("wait %d, wanted %t, was ended %d times", w.nth, w.wanted(), w.ended)
		}
	}
	if looks == 0 {
		t.Error("nothing was given up: the run does not show what it should")
	}
}

// Rule: a line that was long and has become short keeps few given-up waits. Its former length does
// not matter.
func TestALineForgetsHowLongItWas(t *testing.T) {
	var line []*lineWait
	kept := 0
	for range 100 * pruneFrom {
		line = served(append(line, &lineWait{}), 0, &kept)
	}
	line = served(line, len(line)-1, &kept) // one wait stays
	for range 100 * pruneFrom {
		line = served(append(line, &lineWait{gone: true}), 0, &kept)
	}
	if len(line) > pruneFrom || !line[0].wanted() {
		t.Errorf("%d places for one wait, of %t", len(line), line[0].wanted())
	}
}

// Rule: of 5000 given-up waits for datagrams a PacketConn keeps at most pruneFrom. The wait that
// was not given up gets the first datagram.
func TestGivenUpPacketWaitsAreNotKept(t *testing.T) {
	server := mustOpen(t, Config{})
	p, q := mustListenPacket(t, server, Options{}), mustListenPacket(t, server, Options{})
	first := p.Recv() // stays first in the line, so that only pruning can remove the waits behind it
	for range 5000 {
		if _, err := p.RecvWait(endedContext()); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	kept := 0
	if err := p.sh.r.Do(testContext(t), func() { p.match(); kept = len(p.waits) }); err != nil {
		t.Fatal(err)
	}
	if kept > pruneFrom {
		t.Errorf("%d waits are kept, of 1", kept)
	}
	to := must.Get(q.Resolve(testContext(t), p.Addr().String()))(t)
	q.sendBytes(t, to, []byte("first"))
	k, err := first.Await(testContext(t))
	if err != nil || string(k.Data) != "first" {
		t.Fatalf("who waited got %q, %v", k.Data, err)
	}
	if err := k.Release(); err != nil {
		t.Error(err)
	}
}

// The function sharing connects n clients to a server whose connections share receives. It returns
// the shared receives and both ends of each connection. At most depth receives can be posted. The server asks
// no peer whether it is there.
func sharing(t *testing.T, d bed, depth, n int) (s *SharedRecv, servers, clients []*Conn) {
	t.Helper()
	server, client := d.open(t, Config{Reactors: 2}, 1), d.open(t, Config{}, 0)
	s = must.Get(server.NewSharedRecv(depth, 0))(t)
	ln := must.Get(server.ListenOptions(":0", Options{Raw: true, Shared: s, KeepAlive: -1}))(t)
	ctx := testContext(t)
	for range n {
		seat := must.Get(ln.AcceptAsync())(t)
		c := must.Get(client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true}))(t)
		o := must.Get(seat.Await(ctx))(t)
		servers, clients = append(servers, o), append(clients, c)
	}
	return s, servers, clients
}

// postShared posts a shared receive of n bytes. The buffer is released when the test ends.
func postShared(t *testing.T, s *SharedRecv, n int) (futures.Future[Arrival], Buffer) {
	t.Helper()
	buf := must.Get(s.rt.Alloc(n))(t)
	f := must.Get(s.PostRecv(buf.Slice()))(t)
	t.Cleanup(func() { _ = buf.Release() })
	return f, buf
}

// Rule: a message takes the next shared receive, whichever connection it arrives on. The result
// names the connection. While no receive is posted, the peer waits.
func TestSharedReceivesServeAllConnections(t *testing.T) {
	onBeds(t, sharedReceivesServeAllConnections)
}

func sharedReceivesServeAllConnections(t *testing.T, d bed) {
	const conns, rounds = 5, 40
	s, servers, clients := sharing(t, d, 4, conns)
	ctx := testContext(t)
	for round := range rounds {
		var sent []Future
		for i, c := range clients {
			f := must.Get(c.SendBytes(ctx, fmt.Appendf(nil, "%d of %d", round, i)))(t)
			sent = append(sent, f)
		}
		for range conns { // one receive at a time: the other messages wait for the next one
			f, buf := postShared(t, s, 64)
			a := must.Get(f.Await(ctx))(t)
			from := -1
			for i := range servers {
				if a.Conn == servers[i] {
					from = i
				}
			}
			if got, want := string(buf.Bytes()[:a.Bytes]), fmt.Sprintf("%d of %d", round, from); got != want {
				t.Fatalf("connection %d delivered %q, want %q", from, got, want)
			}
		}
		for _, f := range sent {
			done(t, f, nil)
		}
	}
}

// Rule: the end of a connection takes no posted receive from the other connections.
func TestSharedReceivesOutliveAConnection(t *testing.T) { onBeds(t, sharedReceivesOutliveAConnection) }

func sharedReceivesOutliveAConnection(t *testing.T, d bed) {
	s, servers, clients := sharing(t, d, 8, 3)
	ctx := testContext(t)
	var posted []futures.Future[Arrival]
	for range 8 {
		f, _ := postShared(t, s, 64)
		posted = append(posted, f)
	}
	if err := servers[0].Close(ctx); err != nil {
		t.Fatal(err)
	}
	clients[1].Abort()
	<-servers[1].Done()
	taken := 0
	for range 8 {
		f, err := clients[2].SendBytes(ctx, []byte("x"))
		done(t, f, err)
	}
	for _, f := range posted {
		a, err := f.Await(ctx)
		if err != nil || a.Conn != servers[2] {
			t.Errorf("receive %d: by %p, %v; want by %p", taken, a.Conn, err, servers[2])
		}
		taken++
	}
}

// Rule: a connection that uses shared receives fails with its queue pair, also when it has no operation that
// could fail.
func TestSharedReceivesTellOfAFailure(t *testing.T) {
	notOnDevice(t, "not every device reports LAST_WQE_REACHED")
	_, servers, _ := sharing(t, mainBed, 2, 1)
	must.Do(t, servers[0].q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	select {
	case <-servers[0].Done():
	case <-testContext(t).Done():
		t.Fatal("the connection is open")
	}
	if err := servers[0].Err(); !errors.Is(err, ErrQueuePair) {
		t.Errorf("it failed with %v, want %v", err, ErrQueuePair)
	}
}

// Rule: Close returns ErrBusy while a connection uses the shared receives. When Close has
// succeeded, the posted receives complete with ErrClosed, and no more are accepted.
func TestSharedReceivesClose(t *testing.T) { onBeds(t, sharedReceivesClose) }

func sharedReceivesClose(t *testing.T, d bed) {
	s, servers, _ := sharing(t, d, 2, 1)
	f, _ := postShared(t, s, 64)
	mistake(t, "closing what a connection uses", s.Close(), verbs.ErrBusy, "1 connections")
	if err := servers[0].Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if _, err := f.Await(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("the posted receive: %v, want %v", err, ErrClosed)
	}
	buf := must.Get(s.rt.Alloc(8))(t)
	defer func() { _ = buf.Release() }()
	if _, err := s.PostRecv(buf.Slice()); !errors.Is(err, ErrClosed) {
		t.Errorf("posting to a closed one: %v, want %v", err, ErrClosed)
	}
}

// Rule: an invalid use of shared receives returns an error that names the reason.
func TestSharedReceivesMistakes(t *testing.T) {
	s, servers, _ := sharing(t, mainBed, 2, 1)
	_, err := s.rt.ListenOptions(":0", Options{Shared: s})
	mistake(t, "shared receives of a managed connection", err, ErrConfig, "Shared")
	_, err = servers[0].PostRecv()
	mistake(t, "receives of one connection", err, ErrMode, "Shared")
	for range 2 {
		_, _ = postShared(t, s, 8)
	}
	_, err = s.PostRecv()
	mistake(t, "one too many", err, reactor.ErrRecvFull)
	_, err = s.rt.NewSharedRecv(1<<20, 0)
	mistake(t, "more than can be numbered", err, ErrConfig, "1048576")
}

// Rule: if Options.Shared is closed or belongs to another runtime, ListenOptions and DialOptions
// return an error at once. They do not wait until a peer connects.
func TestSharedReceivesOfOthersAreRefused(t *testing.T) {
	a, b := mustOpen(t, Config{Device: first.name}), mustOpen(t, Config{Device: second.name})
	s, err := b.NewSharedRecv(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.ListenOptions(":0", Options{Raw: true, Shared: s})
	mistake(t, "another runtime's", err, ErrConfig, "Options.Shared", "another runtime")
	_, err = a.DialOptions(testContext(t), second.at("1"), Options{Raw: true, Shared: s})
	mistake(t, "another runtime's", err, ErrConfig, "another runtime")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = b.ListenOptions(":0", Options{Raw: true, Shared: s})
	mistake(t, "closed", err, ErrConfig, "Options.Shared", "closed")
}
