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

// queuePairs returns how many queue pairs the runtime's device has.
func queuePairs(rt *Runtime) int { return rt.dev.Objects().QP }

// eventually() waits until is() returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := testContext(t); !is(); {
		if ctx.Err() != nil {
			t.Fatalf("%s does not come", what)
		}
	}
}

// ready() returns how many connections wait to be accepted.
func ready(t *testing.T, ln *Listener) (n int) {
	t.Helper()
	if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.ready) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Rule: Dial succeeds before Accept is called, until the backlog is full. Then Dial fails with a
// reason, and the listener creates no queue pair for the request. Accept returns the connections in
// the order of their establishment. Messages sent before Accept can be received.
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
			t.Fatalf("dialing, number %d: %v", i, err)
		}
		f, err := c.SendBytes(ctx, fmt.Appendf(nil, "from %d", i))
		done(t, f, err)
		eventually(t, "the connection", func() bool { return ready(t, ln) == min(i+1, backlog) })
		return c
	}
	for i := range backlog {
		dial(i)
	}
	have := queuePairs(server)
	_, err = client.Dial(ctx, ln.Addr().String())
	rej, ok := errors.AsType[*RejectError](err)
	if !ok || rej.Code != proto.RejectResources || !strings.Contains(rej.Text, "4 connections are waiting to be accepted") {
		t.Errorf("dialing beyond the backlog: %v", err)
	}
	if n := queuePairs(server); n != have {
		t.Errorf("for who was refused there are %d queue pairs, want the %d there were", n, have)
	}
	accept := func(i int) {
		t.Helper()
		c := must.Get(ln.Accept(ctx))(t)
		m, err := c.RecvWait(ctx)
		if want := fmt.Sprintf("from %d", i); err != nil || string(m.Data) != want {
			t.Errorf("accepted was %q, %v, want %q", m.Data, err, want)
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
		eventually(t, "the connection", func() bool { return ready(t, ln) == max(i, 1) })
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
			t.Fatalf("accepted was one that said %q, %v, want %q", m.Data, err, want)
		}
		release(t, m)
		if want == "last words" {
			if _, err := c.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("after the last message: %v, want %v", err, ErrPeerClosed)
			}
		}
	}
}

// Rule: Listener.Close closes the connections that were not accepted and frees their resources.
// Their peers get ErrPeerClosed. Accepted connections stay open.
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
		t.Errorf("accepting after Close: %v, want %v", err, ErrClosed)
	}
	for i, c := range conns[1:] {
		select {
		case <-c.Done():
			if !errors.Is(c.Err(), ErrPeerClosed) {
				t.Errorf("connection %d, which was not accepted, ended with %v, want %v", i+1, c.Err(), ErrPeerClosed)
			}
		case <-ctx.Done():
			t.Fatalf("connection %d, which was not accepted, lives on", i+1)
		}
	}
	eventually(t, "the end of what was not accepted", func() bool { return dialing(server) == 1 && queuePairs(server) == 1 })
	f, err := conns[0].SendBytes(ctx, []byte("still here"))
	done(t, f, err)
	m, err := kept.RecvWait(ctx)
	if err != nil || string(m.Data) != "still here" {
		t.Fatalf("%q, %v", m.Data, err)
	}
	release(t, m)
}

// Rule: if a future of AcceptAsync has a connection and is discarded, the next Accept gets the
// connection. But if the connection has ended without a message, the connection is closed.
func TestADiscardedConnectionGoesToTheNext(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name, Reactors: 2}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	for _, leaves := range []bool{false, true} {
		seat := must.Get(ln.AcceptAsync())(t)
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		eventually(t, "the connection", seat.Settled)
		if leaves {
			if err := c.Close(ctx); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its peer's end", func() bool { // the server has noticed that the peer has left
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
			eventually(t, "the end of what nobody wants", func() bool { return dialing(server) == 1 })
			continue
		}
		seat.Discard()
		s := must.Get(ln.Accept(ctx))(t)
		f, err := s.SendBytes(ctx, []byte("yours"))
		done(t, f, err)
		m, err := c.RecvWait(ctx)
		if err != nil || string(m.Data) != "yours" {
			t.Fatalf("%q, %v", m.Data, err)
		}
		release(t, m)
	}
}

// Rule: if an AcceptAsync future is discarded when its connection is gone already, the backlog
// keeps no entry for the connection.
func TestADiscardedConnectionThatIsGoneIsForgotten(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	if _, err := client.Dial(testContext(t), ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection", seat.Settled)
	server.mu.Lock()
	for c := range server.live {
		c.Abort() // frees the connection, as happens when a device does not flush
	}
	server.mu.Unlock()
	eventually(t, "its end", func() bool { return dialing(server) == 0 })
	seat.Discard()
	eventually(t, "its leaving the backlog", func() (is bool) {
		if err := ln.sh.r.Do(testContext(t), func() {
			is = ln.backlog.begun == 0 && len(ln.backlog.ready) == 0 && len(ln.backlog.peers) == 0
		}); err != nil {
			t.Fatal(err)
		}
		return is
	})
}

// Rule: a listener forgets discarded futures of AcceptAsync even if no peer connects.
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
		t.Errorf("%d seats are kept of none, want at most %d", n, pruneFrom)
	}
}

// Rule: a peer that sends requests and then stays silent delays no other peer. Its share of
// handshakes limits how many of its requests get a queue pair. The other requests are evicted when
// the backlog is full.
func TestSilentRequestsDelayNobody(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	server := mustOpen(t, Config{Provider: p, Device: "soft1"})
	client := mustOpen(t, Config{Provider: p, Device: "soft0"})
	const backlog = 16 // at most 8 handshakes, at most 2 of one address
	ln := must.Get(server.ListenOptions(":0", Options{Backlog: backlog}))(t)
	hi := proto.EncodeHello(proto.Hello{Credits: 4, RecvSize: 4096})
	a := newAsker(t, link, "127.0.0.9", ln.Addr(), hi)
	a.ask(backlog)
	eventually(t, "the backlog's filling", func() bool { return waiting(t, ln) == backlog })
	eventually(t, "the beginning of its handshakes", func() bool { return queuePairs(server) == ln.backlog.begunEach })
	ctx := testContext(t)
	for i := range 2 * backlog { // the first dial evicts a silent request, and the next dials use the free place
		c, err := client.Dial(ctx, ln.Addr().String())
		if err != nil {
			t.Fatalf("dialing beside silent requests, number %d: %v", i, err)
		}
		s := must.Get(ln.Accept(ctx))(t)
		f, err := c.SendBytes(ctx, []byte("honest"))
		done(t, f, err)
		m, err := s.RecvWait(ctx)
		if err != nil || string(m.Data) != "honest" {
			t.Fatalf("who was accepted said %q, %v", m.Data, err)
		}
		release(t, m)
		if err := errors.Join(c.Close(ctx), s.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: while one address sends 1,000 requests a second and never finishes a handshake, 99 of 100
// dials from another address take less than 50 ms of virtual time.
// (BenchmarkDialBesideSilentRequests measures real time.)
func TestDialingBesideAFloodOfSilentRequests(t *testing.T) {
	notOnDevice(t, "virtual time")
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
	defer func() {
		r.shut()
		if err := errors.Join(r.errs...); err != nil {
			t.Error(err)
		}
	}()
	ln := must.Get(r.server.Listen(":0"))(t)
	a := newAsker(t, link, "10.0.0.9", ln.Addr(), proto.EncodeHello(proto.Hello{Credits: 4, RecvSize: 4096}))
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
			t.Fatalf("dialing beside the flood, after %v: %v", link.Now()-at, err)
		}
		took = append(took, link.Now()-at)
		seat := must.Get(ln.AcceptAsync())(t)
		s := must.Get(reached(r, seat, 0))(t)
		r.hangUp(c, s)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d silent requests in %v; dialing took %v, p99 %v, at most %v", a.asked, link.Now(), took[len(took)/2], p99, took[len(took)-1])
	if p99 >= 50*time.Millisecond {
		t.Errorf("1 of 100 dials took %v, want less than 50ms", p99)
	}
	if n := queuePairs(r.server); n > ln.backlog.begunEach {
		t.Errorf("a silent address has %d queue pairs, want at most %d", n, ln.backlog.begunEach)
	}
}

// Rule: a waiting Accept gets an established connection even if the connection has already ended
// when the listener is notified of the establishment.
func TestWhoWaitsGetsWhatIsEstablished(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	ctx := testContext(t)
	c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	s := must.Get(ln.Accept(ctx))(t)
	c.Abort()
	if m, err := s.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("a message %v, %v, want %v", m, err, ErrPeerClosed)
	}
	seat := must.Get(ln.AcceptAsync())(t)
	if err := ln.sh.r.Do(ctx, func() { // repeat the request, as if the listener were notified of the establishment only now
		now := server.cfg.now()
		ln.backlog.admit(&s.from.entry, s.RemoteAddr().Addr())
		ln.backlog.next(now, 1)
		ln.backlog.prepared(&s.from.entry, now)
		s.from.settled(nil)
	}); err != nil {
		t.Fatal(err)
	}
	if again, err := seat.Await(ctx); again != s {
		t.Errorf("accepted was %v, %v, want the connection that had ended", again, err)
	}
}
