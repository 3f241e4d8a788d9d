package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// lineWait implements the interface waiter (conn_recv_waits.go): it is one wait in a line of waits.
type lineWait struct {
	nth   int  // position in the order of arrival
	gone  bool // the result of the wait is not wanted any more
	ended int  // how many times giveUp has ended the wait
}

func (w *lineWait) wanted() bool { return !w.gone }
func (w *lineWait) giveUp()      { w.ended++ }

// Rule: if waits of a line become unwanted, a call of served still keeps all wanted waits, in their
// order. An unwanted wait is ended at most one time, and a wanted wait is never ended. After each call
// of served, the length of the line is less than max(pruneFrom, 2*kept).
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
					t.Fatalf("phase %d: place %d of the line has wait %d, which was ended %d times; want the waits in ascending order, and none of them ended", phase, k, w.nth, w.ended)
				}
				if w.wanted() {
					if i == len(wanted) || wanted[i] != w {
						t.Fatalf("phase %d: the wanted wait %d is out of order, want all wanted waits in their order before the call", phase, w.nth)
					}
					i++
				}
			}
			if i != len(wanted) {
				t.Fatalf("phase %d: the line has %d wanted waits, want %d", phase, i, len(wanted))
			}
			if most := max(pruneFrom, 2*kept); len(line) >= most {
				t.Fatalf("phase %d: the line has %d waits, want fewer than %d (kept is %d)", phase, len(line), most, kept)
			}
		}
	}
	for _, w := range all {
		if w.ended > 1 || w.ended == 1 && w.wanted() {
			t.Fatalf("wait %d (wanted: %t) was ended %d times, want at most once, and never if it is wanted", w.nth, w.wanted(), w.ended)
		}
	}
	if looks == 0 {
		t.Error("served has removed no unwanted wait, so the run has not tested the rule")
	}
}

// Rule: if a long line has become short, it has at most pruneFrom waits afterwards, however many
// unwanted waits are added. The former length of the line does not matter.
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
		t.Errorf("the line has %d waits, and wanted returns %t for the first; want at most %d waits, and true", len(line), line[0].wanted(), pruneFrom)
	}
}

// Rule: if 5000 calls of RecvWait end with their contexts, the PacketConn keeps at most pruneFrom
// waits. A Recv that still waits gets the first datagram.
func TestGivenUpPacketWaitsAreNotKept(t *testing.T) {
	server := mustOpen(t, Config{})
	p, q := mustListenPacket(t, server, Options{}), mustListenPacket(t, server, Options{})
	first := p.Recv() // stays first in the line, so that only pruning can remove the waits behind it
	for range 5000 {
		if _, err := p.RecvWait(givenUp); !errors.Is(err, errGivenUp) {
			t.Fatalf("RecvWait with an ended context: %v, want %v", err, context.Canceled)
		}
	}
	kept := 0
	if err := p.sh.r.Do(testContext(t), func() { p.match(); kept = len(p.waits) }); err != nil {
		t.Fatal(err)
	}
	if kept > pruneFrom {
		t.Errorf("the PacketConn keeps %d waits, want at most %d", kept, pruneFrom)
	}
	to := must.Get(q.Resolve(testContext(t), p.Addr().String()))(t)
	q.sendBytes(t, to, []byte("first"))
	k, err := first.Await(testContext(t))
	if err != nil || string(k.Data) != "first" {
		t.Fatalf("the waiting Recv got %q, %v; want \"first\"", k.Data, err)
	}
	if err := k.Release(); err != nil {
		t.Errorf("releasing the datagram: %v", err)
	}
}

// sharing makes n connections from a client to a server. The server's connections share a receive
// queue of the given depth. The server sends no keep-alives. The results are the shared
// receives and both ends of each connection.
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

// Rule: if connections share receives, a message on any of them takes the next shared receive, and
// the result of the receive names the connection. While no receive is posted, the sender's messages
// wait.
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
		for range conns { // one receive at a time: the other messages wait for the next receive
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

// Rule: if a connection ends, all posted shared receives stay available to the other connections.
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
			t.Errorf("receive %d ended with connection %p and error %v, want connection %p and no error", taken, a.Conn, err, servers[2])
		}
		taken++
	}
}

// Rule: if the queue pair of a connection with shared receives moves to ERR, the connection fails,
// even if it has no outstanding operation whose completion could report the error.
func TestSharedReceivesTellOfAFailure(t *testing.T) {
	notOnDevice(t, "not every device reports LAST_WQE_REACHED")
	_, servers, _ := sharing(t, mainBed, 2, 1)
	must.Do(t, servers[0].q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	select {
	case <-servers[0].Done():
	case <-testContext(t).Done():
		t.Fatal("the connection is still open after its queue pair moved to ERR")
	}
	if err := servers[0].Err(); !errors.Is(err, ErrQueuePair) {
		t.Errorf("the connection failed with %v, want %v", err, ErrQueuePair)
	}
}

// Rule: while a connection uses the shared receives, SharedRecv.Close returns ErrBusy. After Close
// has succeeded, the posted receives complete with ErrClosed, and PostRecv returns ErrClosed.
func TestSharedReceivesClose(t *testing.T) { onBeds(t, sharedReceivesClose) }

func sharedReceivesClose(t *testing.T, d bed) {
	s, servers, _ := sharing(t, d, 2, 1)
	f, _ := postShared(t, s, 64)
	mistake(t, "Close of shared receives that a connection uses", s.Close(), verbs.ErrBusy, "1 connections")
	if err := servers[0].Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close after the connection was closed: %v, want no error", err)
		}
	}
	if _, err := f.Await(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("the posted receive ended with %v, want %v", err, ErrClosed)
	}
	buf := must.Get(s.rt.Alloc(8))(t)
	defer func() { _ = buf.Release() }()
	if _, err := s.PostRecv(buf.Slice()); !errors.Is(err, ErrClosed) {
		t.Errorf("PostRecv after Close: %v, want %v", err, ErrClosed)
	}
}

// Rule: if shared receives are used in an invalid way, the call returns an error that names the
// reason.
func TestSharedReceivesMistakes(t *testing.T) {
	s, servers, _ := sharing(t, mainBed, 2, 1)
	_, err := s.rt.ListenOptions(":0", Options{Shared: s})
	mistake(t, "listening with Shared and without Raw", err, ErrConfig, "Shared")
	_, err = servers[0].PostRecv()
	mistake(t, "Conn.PostRecv on a connection with shared receives", err, ErrMode, "Shared")
	for range 2 {
		_, _ = postShared(t, s, 8)
	}
	_, err = s.PostRecv()
	mistake(t, "posting a third receive to a SharedRecv of depth 2", err, reactor.ErrRecvFull)
	_, err = s.rt.NewSharedRecv(1<<20, 0)
	mistake(t, "making a SharedRecv of depth 1048576", err, ErrConfig, "1048576")
}

// Rule: a slice that is longer than one scatter-gather element can say is refused, not cut, and nothing is leased.
func TestASliceTooLongForAnElementIsRefused(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("no slice of a 32-bit system is too long")
	}
	rt := mustOpen(t, Config{Device: first.name})
	s := must.Get(rt.NewSharedRecv(1, 2))(t)
	defer func() { must.Do(t, s.Close()) }()
	r := must.Get(rt.NewRegion(64, verbs.AccessLocalWrite))(t)
	at := must.Get(r.Slice(0, 64))(t)
	long := at
	four := uint64(1) << 32
	long.deviceLen = int(four) // as if 4 GiB of another device's memory followed
	_, err := s.PostRecv(at, long)
	mistake(t, "posting a receive of 4 GiB and 64 bytes", err, ErrTooLarge, "4294967360")
	must.Do(t, r.Close()) // ErrBusy if something were leased
}

// Rule (ibv_post_recv): a receive may have room for more than the longest message of the port, and for more than 4 GiB
// in all. The length of the message counts.
func TestAReceiveMayBeLargerThanAnyMessage(t *testing.T) {
	notOnDevice(t, "elements longer than their memory region, which rdma_rxe refuses when a message arrives")
	if strconv.IntSize == 32 {
		t.Skip("no slice of a 32-bit system is so long")
	}
	a, b := connected(t, Config{Conn: Options{Raw: true, MaxSGE: 2}})
	r := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite))(t)
	long := must.Get(r.Slice(0, 64))(t)
	three := uint64(3) << 30
	long.deviceLen = int(three) // as if 3 GiB of another device's memory followed
	f := must.Get(b.PostRecv(long, long))(t)
	must.Get(must.Get(a.SendBytes(testContext(t), []byte("short")))(t).Await(testContext(t)))(t)
	if got := must.Get(f.Await(testContext(t)))(t); got.Bytes != 5 || string(r.Bytes()[:5]) != "short" {
		t.Errorf("a message of 5 bytes came as %d bytes, %q", got.Bytes, r.Bytes()[:5])
	}
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
	mistake(t, "listening with another runtime's SharedRecv", err, ErrConfig, "Options.Shared", "another runtime")
	_, err = a.DialOptions(testContext(t), second.at("1"), Options{Raw: true, Shared: s})
	mistake(t, "dialing with another runtime's SharedRecv", err, ErrConfig, "another runtime")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = b.ListenOptions(":0", Options{Raw: true, Shared: s})
	mistake(t, "listening with a closed SharedRecv", err, ErrConfig, "Options.Shared", "closed")
}
