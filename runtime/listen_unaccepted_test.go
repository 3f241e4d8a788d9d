package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// queuePairs returns how many queue pairs exist on the runtime's device context.
func queuePairs(rt *Runtime) int { return rt.dev.Objects().QP }

// eventually polls a condition until it is true. If the condition is still false after patience(), the
// test fails, with a text that names the event for which it waited.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := testContext(t); !is(); {
		if ctx.Err() != nil {
			t.Fatalf("after %v the test still waits for %s", patience(), what)
		}
	}
}

// ready returns how many established connections of ln wait to be accepted.
func ready(t *testing.T, ln *Listener) (n int) {
	t.Helper()
	if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.ready) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Rule: if the backlog has room, Dial succeeds before Accept is called. If the backlog is full, Dial
// fails with a reason, and the listener creates no queue pair for the request. Accept returns the
// connections in the order of their establishment. Messages sent before Accept can be received.
func TestDialSucceedsUpToTheBacklog(t *testing.T) { onBeds(t, dialsUpToTheBacklog) }

func dialsUpToTheBacklog(t *testing.T, d bed) {
	const backlog = 4
	server, client := d.open(t, Config{Reactors: 2}, 1), d.open(t, Config{}, 0)
	ln, err := server.ListenOptions(":0", Options{Backlog: backlog})
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	dial := func(i int) *Conn {
		t.Helper()
		c, err := client.Dial(ctx, ln.Addr().String())
		if err != nil {
			t.Fatalf("dialing connection %d: %v, want no error", i, err)
		}
		f, err := c.SendBytes(ctx, fmt.Appendf(nil, "from %d", i))
		done(t, f, err)
		eventually(t, "the listener to have the connection", func() bool { return ready(t, ln) == min(i+1, backlog) })
		return c
	}
	for i := range backlog {
		dial(i)
	}
	have := queuePairs(server)
	_, err = client.Dial(ctx, ln.Addr().String())
	rej, ok := errors.AsType[*RejectError](err)
	if !ok || rej.Code != proto.RejectResources || !strings.Contains(rej.Text, "4 connections are waiting to be accepted") {
		t.Errorf("dialing while the backlog is full: %v, want a RejectError with code %d that names the 4 waiting connections", err, proto.RejectResources)
	}
	if n := queuePairs(server); n != have {
		t.Errorf("after the refused request the server has %d queue pairs, want %d as before", n, have)
	}
	accept := func(i int) {
		t.Helper()
		c := must.Get(ln.Accept(ctx))(t)
		m, err := c.RecvWait(ctx)
		if want := fmt.Sprintf("from %d", i); err != nil || string(m.Data) != want {
			t.Errorf("the accepted connection received %q, %v; want %q", m.Data, err, want)
		}
		release(t, m)
	}
	accept(0)
	dial(backlog)
	for i := range backlog {
		accept(i + 1)
	}
}

// Rule: if a peer closes its connection before Accept and no message has arrived, Accept skips the
// connection. If messages have arrived, Accept returns the connection, and the messages can be
// received.
func TestPeersThatLeaveBeforeTheyAreAccepted(t *testing.T) { onBeds(t, leaveUnaccepted) }

func leaveUnaccepted(t *testing.T, d bed) {
	server, client := d.open(t, Config{}, 1), d.open(t, Config{}, 0)
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	for i, last := range []string{"", "last words", "here"} {
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		if last != "" {
			f, err := c.SendBytes(ctx, []byte(last))
			done(t, f, err)
		}
		eventually(t, "the listener to have the connection", func() bool { return ready(t, ln) == max(i, 1) })
		if last == "here" {
			break
		}
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if last == "" {
			eventually(t, "the end of a connection without messages", func() bool { return dialing(server) == 0 && queuePairs(server) == 0 })
		}
	}
	for _, want := range []string{"last words", "here"} {
		c := must.Get(ln.Accept(ctx))(t)
		m, err := c.RecvWait(ctx)
		if err != nil || string(m.Data) != want {
			t.Fatalf("the accepted connection received %q, %v; want %q", m.Data, err, want)
		}
		release(t, m)
		if want == "last words" {
			if _, err := c.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("RecvWait after the last message: %v, want %v", err, ErrPeerClosed)
			}
		}
	}
}

// Rule: if connections of a listener were not accepted, Listener.Close closes them and frees their
// resources, and their peers get ErrPeerClosed. Accepted connections stay open.
func TestClosingAListenerEndsWhatNobodyAccepted(t *testing.T) { onBeds(t, closesUnaccepted) }

func closesUnaccepted(t *testing.T, d bed) {
	server, client := d.open(t, Config{Reactors: 2}, 1), d.open(t, Config{}, 0)
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	var conns []*Conn
	for range 5 {
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		conns = append(conns, c)
	}
	kept := must.Get(ln.Accept(ctx))(t)
	if err := ln.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := ln.Accept(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("Accept after Listener.Close: %v, want %v", err, ErrClosed)
	}
	over := make(chan *Conn, len(conns))
	for _, c := range conns {
		go func() { <-c.Done(); over <- c }()
	}
	for range len(conns) - 1 {
		select {
		case c := <-over:
			if !errors.Is(c.Err(), ErrPeerClosed) {
				t.Errorf("a connection that was not accepted ended with %v, want %v", c.Err(), ErrPeerClosed)
			}
			conns = slices.DeleteFunc(conns, func(o *Conn) bool { return o == c })
		case <-ctx.Done():
			t.Fatalf("%d connections are open after Listener.Close, want 1", len(conns))
		}
	}
	// The one that is left is not always the first: the server's connections are established on two reactors.
	eventually(t, "the end of the connections that were not accepted", func() bool { return dialing(server) == 1 && queuePairs(server) == 1 })
	f, err := conns[0].SendBytes(ctx, []byte("still here"))
	done(t, f, err)
	m, err := kept.RecvWait(ctx)
	if err != nil || string(m.Data) != "still here" {
		t.Fatalf("the accepted connection received %q, %v after Listener.Close; want \"still here\"", m.Data, err)
	}
	release(t, m)
}

// Rule: if a future of AcceptAsync is discarded after it got a connection, the next Accept gets the
// connection. But if the connection has ended without a message, the listener closes it.
func TestADiscardedConnectionGoesToTheNext(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name, Reactors: 2}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	for _, leaves := range []bool{false, true} {
		seat := must.Get(ln.AcceptAsync())(t)
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		eventually(t, "the future to have the connection", seat.Settled)
		if leaves {
			if err := c.Close(ctx); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the server to notice that the client has closed the connection", func() bool {
				server.mu.Lock()
				defer server.mu.Unlock()
				for s := range server.live {
					if s.Err() != nil {
						return true
					}
				}
				return false
			})
			seat.Discard()
			eventually(t, "the end of the discarded connection", func() bool { return dialing(server) == 1 })
			continue
		}
		seat.Discard()
		s := must.Get(ln.Accept(ctx))(t)
		f, err := s.SendBytes(ctx, []byte("yours"))
		done(t, f, err)
		m, err := c.RecvWait(ctx)
		if err != nil || string(m.Data) != "yours" {
			t.Fatalf("the client received %q, %v; want \"yours\"", m.Data, err)
		}
		release(t, m)
	}
}

// Rule: if a future of AcceptAsync is discarded after its connection was closed and freed, the
// backlog keeps no entry for the connection.
func TestADiscardedConnectionThatIsGoneIsForgotten(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	if _, err := client.Dial(testContext(t), ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the future to have the connection", seat.Settled)
	server.mu.Lock()
	for c := range server.live {
		c.Abort() // closes the connection, as the runtime itself does if the device does not flush
	}
	server.mu.Unlock()
	eventually(t, "the end of the connection", func() bool { return dialing(server) == 0 })
	seat.Discard()
	eventually(t, "the backlog to be empty", func() (is bool) {
		if err := ln.sh.r.Do(testContext(t), func() {
			is = ln.backlog.begun == 0 && len(ln.backlog.ready) == 0 && len(ln.backlog.peers) == 0
		}); err != nil {
			t.Fatal(err)
		}
		return is
	})
}

// Rule: if futures of AcceptAsync are discarded, the listener forgets them even if no peer connects.
func TestDiscardedSeatsAreForgotten(t *testing.T) {
	ln := must.Get(mustOpen(t, Config{}).Listen(":0"))(t)
	for range 20 * pruneFrom {
		f := must.Get(ln.AcceptAsync())(t)
		f.Discard()
	}
	var n int
	if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.waiters.all) }); err != nil {
		t.Fatal(err)
	}
	if n > pruneFrom {
		t.Errorf("the listener keeps %d discarded futures, want at most %d", n, pruneFrom)
	}
}

// Rule: if a peer sends requests and then stays silent, it delays no other peer. The limit of
// handshakes of one address also limits how many requests of the silent peer get a queue pair. When
// the backlog is full, requests of other peers evict requests of the silent peer that have no queue
// pair.
func TestSilentRequestsDelayNobody(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	server := mustOpen(t, Config{Provider: p, Device: "soft1"})
	client := mustOpen(t, Config{Provider: p, Device: "soft0"})
	const backlog = 16 // at most 8 handshakes, at most 2 of one address
	ln := must.Get(server.ListenOptions(":0", Options{Backlog: backlog}))(t)
	hi := proto.EncodeHello(proto.Hello{Credits: 4, Most: 4, RecvSize: 4096})
	a := newAsker(t, link, "127.0.0.9", ln.Addr(), hi)
	a.ask(backlog)
	eventually(t, "the silent requests to fill the backlog", func() bool { return waiting(t, ln) == backlog })
	eventually(t, "the handshakes of the silent address to begin", func() bool { return queuePairs(server) == ln.backlog.begunEach })
	ctx := testContext(t)
	// The first Dial evicts a silent request. Each later Dial uses the place of the previous connection.
	for i := range 2 * backlog {
		c, err := client.Dial(ctx, ln.Addr().String())
		if err != nil {
			t.Fatalf("dialing connection %d beside the silent requests: %v, want no error", i, err)
		}
		s := must.Get(ln.Accept(ctx))(t)
		f, err := c.SendBytes(ctx, []byte("honest"))
		done(t, f, err)
		m, err := s.RecvWait(ctx)
		if err != nil || string(m.Data) != "honest" {
			t.Fatalf("the accepted connection received %q, %v; want \"honest\"", m.Data, err)
		}
		release(t, m)
		if err := errors.Join(c.Close(ctx), s.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}

// newVirtualPair returns two runtimes on virtual time, with 100 µs between them.
func newVirtualPair(t *testing.T) *nthPaced {
	link := fabric.New(fabric.Config{Virtual: true, Seed: 1})
	p := must.Get(soft.New(soft.Config{Fabric: link, Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "soft1", Addr: netip.MustParseAddr("10.0.0.2")}}}))(t)
	link.SetAll(fabric.Link{Delay: 100 * time.Microsecond})
	r := &nthPaced{fab: link}
	cfg := Config{Provider: p, stepped: true, now: func() time.Time { return time.Unix(0, int64(link.Now())) }, Conn: Options{RecvCredits: 4, SendDepth: 8, MessageSize: 512}}
	open := func(dev string) *Runtime {
		cfg.Device = dev
		rt := must.Get(Open(cfg))(t)
		return rt
	}
	r.client, r.server = open("soft0"), open("soft1")
	t.Cleanup(func() {
		r.shut()
		if err := errors.Join(r.errs...); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Rule: while one address sends 1,000 requests a second and never finishes a handshake, 99 of 100
// dials from another address take less than 50 ms of virtual time.
// (BenchmarkDialBesideSilentRequests measures real time.)
func TestDialingBesideAFloodOfSilentRequests(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	r := newVirtualPair(t)
	link := r.fab
	ln := must.Get(r.server.Listen(":0"))(t)
	a := newAsker(t, link, "10.0.0.9", ln.Addr(), proto.EncodeHello(proto.Hello{Credits: 4, Most: 4, RecvSize: 4096}))
	a.every = time.Millisecond
	a.ask(0)
	var took []time.Duration
	for range 300 {
		at := link.Now() + 7*time.Millisecond
		r.client.shards[0].r.After(7*time.Millisecond, func() {}) // the virtual clock advances only to timers and events
		if err := r.pump(func() bool { return link.Now() >= at }); err != nil {
			t.Fatal(err)
		}
		at = link.Now()
		f := must.Get(r.client.DialAsync(testContext(t), ln.Addr().String(), Options{}))(t)
		c, err := reached(r, f, 0)
		if err != nil {
			t.Fatalf("dialing beside the flood of requests failed after %v: %v", link.Now()-at, err)
		}
		took = append(took, link.Now()-at)
		seat := must.Get(ln.AcceptAsync())(t)
		s := must.Get(reached(r, seat, 0))(t)
		r.hangUp(c, s)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d silent requests in %v; durations of Dial: median %v, 99th percentile %v, maximum %v", a.asked, link.Now(), took[len(took)/2], p99, took[len(took)-1])
	if p99 >= 50*time.Millisecond {
		t.Errorf("the 99th percentile of the durations of Dial is %v, want less than 50ms", p99)
	}
	if n := queuePairs(r.server); n > ln.backlog.begunEach {
		t.Errorf("the silent address has %d queue pairs, want at most %d", n, ln.backlog.begunEach)
	}
}

// Rule: peers that each send one request and stay silent do not lock a raw listener with a single call of Accept: as
// many as its backlog has places for delay another peer by less than 2 s of virtual time.
func TestSilentPeersDoNotLockARawListener(t *testing.T) {
	notOnDevice(t, "the test runs in virtual time")
	r := newVirtualPair(t)
	raw := Options{Raw: true}
	ln := must.Get(r.server.ListenOptions(":0", raw))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	hello := proto.EncodeHello(proto.Hello{Raw: true})
	for i := range DefaultBacklog - 1 {
		newAsker(t, r.fab, fmt.Sprintf("10.0.1.%d", i), ln.Addr(), hello).ask(1)
	}
	if err := r.pump(func() bool { return ln.backlog.len() == DefaultBacklog-1 }); err != nil {
		t.Fatal(err)
	}
	at := r.fab.Now()
	f := must.Get(r.client.DialAsync(testContext(t), ln.Addr().String(), raw))(t)
	c, err := reached(r, f, 0)
	if err != nil {
		t.Fatalf("Dial beside %d silent requests failed after %v: %v", DefaultBacklog-1, r.fab.Now()-at, err)
	}
	took := r.fab.Now() - at
	t.Logf("Dial took %v, %d handshakes have begun", took, ln.backlog.begun)
	if took > 2*time.Second {
		t.Errorf("Dial beside %d silent requests took %v, want less than 2 s", DefaultBacklog-1, took)
	}
	r.hangUp(c, must.Get(reached(r, seat, 0))(t))
}

// Rule: if a connection has already ended when the listener is notified of its establishment, a
// waiting Accept still gets the connection.
func TestWhoWaitsGetsWhatIsEstablished(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	s := must.Get(ln.Accept(ctx))(t)
	c.Abort()
	if m, err := s.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("RecvWait after the peer's Abort: %v, %v; want %v", m, err, ErrPeerClosed)
	}
	seat := must.Get(ln.AcceptAsync())(t)
	if err := ln.sh.r.Do(ctx, func() {
		// The request of s goes through the backlog again, as if the listener were notified of the
		// establishment only now.
		now := server.cfg.now()
		ln.backlog.admit(&s.from.entry, s.RemoteAddr().Addr(), now)
		ln.backlog.next(now, 1)
		ln.backlog.prepared(&s.from.entry, now)
		s.from.settled(nil)
	}); err != nil {
		t.Fatal(err)
	}
	if again, err := seat.Await(ctx); again != s {
		t.Errorf("the future of AcceptAsync has %v, %v; want the connection that had ended", again, err)
	}
}
