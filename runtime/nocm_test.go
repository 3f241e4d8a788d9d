package runtime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// prepare(t, rt, o) returns the result of rt.Prepare(o), and closes this Prepared when the test ends.
func prepare(t testing.TB, rt *Runtime, o PlainOptions) *Prepared {
	t.Helper()
	p := must.Get(rt.Prepare(o))(t)
	t.Cleanup(func() {
		if err := p.Close(testContext(t)); err != nil {
			t.Errorf("closing a Prepared: %v", err)
		}
	})
	return p
}

// joined(t, a, b) connects the Prepared a and the Prepared b to each other. It returns x, the connection
// of a, and y, the connection of b.
func joined(t testing.TB, a, b *Prepared) (x, y *Conn) {
	t.Helper()
	var err error
	if y, err = b.Connect(testContext(t), a.Local()); err != nil {
		t.Fatal(err)
	}
	x = must.Get(a.Connect(testContext(t), b.Local()))(t)
	return x, y
}

// Rule: if two Prepared connect to each other's address, they become the ends of a raw connection, on
// RC and on UC. If a receive was posted before Connect, it gets the peer's first message.
func TestPlainConnection(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		for _, kind := range []verbs.QPType{verbs.QPTRC, verbs.QPTUC} {
			t.Run(kind.String(), func(t *testing.T) {
				rt := b.open(t, Config{}, 0)
				if !slices.Contains(rt.DeviceAttr().QPTypes, kind) {
					t.Skipf("the device has no queue pairs of type %v", kind)
				}
				plainConnection(t, b, PlainOptions{Type: kind})
			})
		}
	})
}

func plainConnection(t *testing.T, b bed, o PlainOptions) {
	server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
	ps, pc := prepare(t, server, o), prepare(t, client, o)
	at := must.Get(verbs.ChooseGID(client.dev, must.Get(verbs.ChoosePort(client.dev))(t)))(t)
	if l := pc.Local(); l.Check() != nil || l.GID != at.GID {
		t.Errorf("Prepared.Local returned %v, want a valid address of a queue pair at %v", l, at.GID)
	}
	buf := must.Get(server.Alloc(100))(t)
	defer buf.Release()
	first := must.Get(ps.PostRecv(buf.Slice()))(t)
	c, s := joined(t, pc, ps)
	ctx := testContext(t)
	sent, err := c.SendBytes(ctx, []byte("first message"))
	done(t, sent, err)
	if r := done(t, first, nil); string(buf.Bytes()[:r.Bytes]) != "first message" {
		t.Errorf("the receive posted before Connect got %q, want %q", buf.Bytes()[:r.Bytes], "first message")
	}
	say(t, s, c, "an answer")
	if !c.Raw() || c.LocalAddr().Addr() != s.RemoteAddr().Addr() || c.RemoteAddr().Addr() != s.LocalAddr().Addr() {
		t.Errorf("Raw() is %v, want true; the client's end is %v to %v, the server's end is %v to %v, want the same two addresses",
			c.Raw(), c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
	}
	there := must.Get(server.NewRegion(8192, allAccess))(t)
	defer there.Close()
	here := must.Get(client.NewRegion(8192, allAccess))(t)
	defer here.Close()
	fillFrom(here.Bytes(), 5)
	remote := must.Get(there.Remote(0, 8192))(t)
	local := must.Get(here.Slice(0, 8192))(t)
	f, err := c.Write(ctx, local, remote)
	done(t, f, err)
	say(t, c, s, "look") // on UC the WRITE may complete before its data arrives; this message arrives after the data
	if !bytes.Equal(there.Bytes(), here.Bytes()) {
		t.Error("after the WRITE the server's region differs from the client's region")
	}
	f, err = c.Read(ctx, local, remote)
	if o.Type == verbs.QPTUC {
		if !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("a READ on UC returned %v, want ErrRequest", err)
		}
	} else {
		done(t, f, err)
	}
	for _, end := range []*Conn{c, s} {
		if err := end.Close(ctx); err != nil || !errors.Is(end.Err(), ErrConnClosed) {
			t.Errorf("Close returned %v, want nil; then Err returned %v, want ErrConnClosed", err, end.Err())
		}
	}
}

// Rule: if the client calls DialPlain, and the server calls Prepared.Accept with the accepted TCP
// connection, both exchange the addresses of their queue pairs over TCP and are connected.
func TestPlainConnectionOverTCP(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		c, s := joinedOverTCP(t, b.open(t, Config{}, 0), b.open(t, Config{}, 1), "127.0.0.1")
		say(t, c, s, "hello")
		say(t, s, c, "hello too")
	})
}

// joinedOverTCP(t, client, server, host) connects a queue pair of client to a queue pair of server,
// and returns the two ends. The runtimes exchange the addresses of the queue pairs over TCP. The
// argument host is the address of this machine at which the TCP server listens.
func joinedOverTCP(t *testing.T, client, server *Runtime, host string) (c, s *Conn) {
	t.Helper()
	ln := must.Get(net.Listen("tcp", net.JoinHostPort(host, "0")))(t)
	defer ln.Close()
	ctx := testContext(t)
	p := prepare(t, server, PlainOptions{})
	accepted := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			defer nc.Close()
			s, err = p.Accept(ctx, nc)
		}
		accepted <- err
	}()
	c = must.Get(client.DialPlain(ctx, ln.Addr().String(), PlainOptions{}))(t)
	must.Do(t, <-accepted)
	return c, s
}

// Rule: if the TCP peer sends no valid address of a queue pair, Prepared.Dial and Prepared.Accept fail
// with ErrMalformed or ErrDest, and leave nothing behind.
func TestPlainConnectionWithAHostilePeer(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		rt := b.open(t, Config{}, 0)
		for _, side := range []func(*Prepared, context.Context, net.Conn) (*Conn, error){(*Prepared).Dial, (*Prepared).Accept} {
			for said, want := range map[string]error{
				"": bootstrap.ErrMalformed, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and some more text\r\n": bootstrap.ErrMalformed,
				"0000:000001:000000:00000000000000000000ffff7f000001\x00": bootstrap.ErrDest, // queue pair number 1 is reserved
				"0000:000000:000000:00000000000000000000000000000000\x00": bootstrap.ErrDest, // queue pair number 0 is reserved
			} {
				here, there := net.Pipe()
				go func() {
					go io.Copy(io.Discard, there)
					_, _ = io.WriteString(there, said)
					there.Close()
				}()
				p := prepare(t, rt, PlainOptions{})
				if _, err := side(p, testContext(t), here); !errors.Is(err, want) {
					t.Errorf("Dial or Accept with a peer that sent %q returned %v, want %v", said, err, want)
				}
				here.Close()
				if _, err := p.Connect(testContext(t), p.Local()); !errors.Is(err, ErrClosed) {
					t.Errorf("Connect after the failed call returned %v, want ErrClosed", err)
				}
			}
		}
		if err := rt.Close(testContext(t)); err != nil {
			t.Errorf("closing the runtime after the failed calls: %v", err)
		}
	})
}

// Rule: if a Prepared was connected or closed, a later Connect returns ErrClosed. Close of a connected
// Prepared does not end its connection. Runtime.Close closes every Prepared that is not connected.
func TestPreparedIsUsedOnce(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		rt := b.open(t, Config{}, 0)
		ctx := testContext(t)
		p := prepare(t, rt, PlainOptions{})
		c, err := p.Connect(ctx, p.Local()) // a Prepared may be connected to itself
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Connect(ctx, p.Local()); !errors.Is(err, ErrClosed) {
			t.Errorf("the second Connect returned %v, want ErrClosed", err)
		}
		if err := p.Close(ctx); err != nil || c.Err() != nil {
			t.Errorf("Close of the connected Prepared returned %v, and then Err of the connection %v; want nil for both", err, c.Err())
		}
		q := prepare(t, rt, PlainOptions{})
		recv := must.Get(q.PostRecv())(t)
		if err := q.Close(ctx); err != nil {
			t.Error(err)
		}
		if _, err := recv.Await(ctx); !errors.Is(err, ErrConnClosed) {
			t.Errorf("the receive of a closed Prepared ended with %v, want ErrConnClosed", err)
		}
		if _, err := q.Connect(ctx, p.Local()); !errors.Is(err, ErrClosed) {
			t.Errorf("Connect of a closed Prepared returned %v, want ErrClosed", err)
		}
		r := prepare(t, rt, PlainOptions{})
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Connect(ctx, r.Local()); err == nil {
			t.Error("Connect after the runtime was closed succeeded, want an error")
		}
		if _, err := rt.Prepare(PlainOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Prepare after the runtime was closed returned %v, want ErrClosed", err)
		}
	})
}

// Rule: if an option is invalid, Prepare returns an error that names the option or its value. If the
// context has ended, DialPlain and Connect return an error that matches the context's error.
func TestPlainOptionsThatCannotBe(t *testing.T) {
	rt := mustOpen(t, Config{})
	_, err := rt.Prepare(PlainOptions{Type: verbs.QPTUD})
	mistake(t, "Prepare with type UD", err, ErrConfig, "UD", "RC or UC")
	_, err = rt.Prepare(PlainOptions{Path: bootstrap.Path{MTU: 9}})
	mistake(t, "Prepare with the invalid MTU code 9", err, verbs.ErrInvalid, "MTU")
	_, err = rt.Prepare(PlainOptions{Path: bootstrap.Path{GIDIndex: 78}})
	mistake(t, "Prepare with GIDIndex 78 (index 77 of the GID table, which has no such entry)", err, verbs.ErrInvalid, "77")
	_, err = rt.Prepare(PlainOptions{Path: bootstrap.Path{DestRdAtomic: 200}})
	mistake(t, "Prepare with more READs than the device serves", err, verbs.ErrInvalid, "DestRdAtomic", "200")
	_, err = rt.Prepare(PlainOptions{Path: bootstrap.Path{RdAtomic: 200}})
	mistake(t, "Prepare with more READs than the device starts", err, verbs.ErrInvalid, "RdAtomic", "200")
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:70000", "127.0.0.1:x"} {
		_, err = rt.DialPlain(testContext(t), addr, PlainOptions{})
		mistake(t, "DialPlain of "+addr, err, ErrAddress, addr)
		if Retryable(err) {
			t.Errorf("DialPlain of %s may be tried again later: %v", addr, err)
		}
	}
	_, err = rt.Prepare(PlainOptions{Options: Options{SendDepth: -1}})
	mistake(t, "Prepare with a negative SendDepth", err, ErrConfig, "SendDepth")
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := rt.DialPlain(ctx, "127.0.0.1:1", PlainOptions{}); errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("DialPlain with a context that has ended returned %v, want context.Canceled, and not ErrUnreachable", err)
	}
	p := prepare(t, rt, PlainOptions{})
	if _, err := p.Connect(ctx, p.Local()); !errors.Is(err, context.Canceled) {
		t.Errorf("Connect with a context that has ended returned %v, want context.Canceled", err)
	}
}

// Rule: if Options.Shared is set for a connection without a connection manager, the messages that the
// connection receives take the shared receives.
func TestPlainConnectionsShareReceives(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		s := must.Get(server.NewSharedRecv(8, 0))(t)
		ctx := testContext(t)
		for range 3 {
			f, buf := postShared(t, s, 64)
			c, o := joined(t, prepare(t, client, PlainOptions{}), prepare(t, server, PlainOptions{Options: Options{Shared: s}}))
			sent, err := c.SendBytes(ctx, []byte("shared"))
			done(t, sent, err)
			if a, err := f.Await(ctx); err != nil || a.Conn != o || string(buf.Bytes()[:a.Bytes]) != "shared" {
				t.Errorf("the shared receive ended with %+v, %v; want the message %q of the connection with the local address %v",
					a, err, "shared", o.LocalAddr())
			}
			if err := errors.Join(o.Close(ctx), c.Close(ctx)); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: if a connection has no connection manager, no event reports that the peer has destroyed its queue
// pair. The next operation fails when its retries are exhausted, and then the connection ends. The errors
// of the operation and of the connection have the status of the failed completion.
func TestPlainPeerThatIsGone(t *testing.T) {
	server, client := mustOpen(t, Config{Device: "soft1"}), mustOpen(t, Config{Device: "soft0"})
	quick := PlainOptions{Path: bootstrap.Path{Timeout: 8, RetryCount: 2}} // the ACK timeout is 1 ms: 4.096 µs × 2^8
	c, s := joined(t, prepare(t, client, quick), prepare(t, server, quick))
	ctx := testContext(t)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Err(); err != nil {
		t.Fatalf("the client's end failed with %v before it sent anything, want no error", err)
	}
	f := must.Get(c.SendBytes(ctx, []byte("anybody?")))(t)
	if _, err := f.Await(ctx); !errors.Is(err, verbs.StatusError(verbs.WCRetryExcErr)) {
		t.Errorf("a SEND to the destroyed queue pair ended with %v, want RETRY_EXC_ERR", err)
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the connection has not ended after its SEND failed")
	}
	if !errors.Is(c.Err(), verbs.StatusError(verbs.WCRetryExcErr)) {
		t.Errorf("the connection ended with %v, want RETRY_EXC_ERR", c.Err())
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Rule: if the device is removed, each Prepared and each connection without a connection manager ends
// with ErrDeviceRemoved. These objects have no connection manager identifier of their own, so no event of
// such an identifier reports the removal.
func TestPlainConnectionOfARemovedDevice(t *testing.T) {
	r := newPlugRig(t, Config{})
	c, _ := joined(t, prepare(t, r.a, PlainOptions{}), prepare(t, r.b, PlainOptions{}))
	p := prepare(t, r.a, PlainOptions{})
	ctx := testContext(t)
	recv, err := c.PostRecv()
	if err != nil {
		t.Fatal(err)
	}
	early := must.Get(p.PostRecv())(t)
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	_, err = recv.Await(ctx)
	lost(t, "the receive of the connection", err)
	_, err = early.Await(ctx)
	lost(t, "the receive of the Prepared", err)
	_, err = p.Connect(ctx, p.Local())
	lost(t, "Prepared.Connect", err)
	_, err = r.a.Prepare(PlainOptions{})
	lost(t, "Runtime.Prepare", err)
	select {
	case <-c.Done():
		lost(t, "the connection", c.Err())
	case <-time.After(10 * time.Second):
		t.Error("the connection has not ended 10 s after its device was removed")
	}
}

// Rule: if the device is removed after a receive was submitted and before the receive is posted, the
// receive ends with ErrDeviceRemoved.
func TestAReceiveThatIsNotPostedEndsWithTheDevice(t *testing.T) {
	r := newPlugRig(t, Config{})
	p := prepare(t, r.a, PlainOptions{})
	ctx := testContext(t)
	var early Future
	var perr error
	if err := p.c.sh.r.Do(ctx, func() { // no pass runs until this function returns
		early, perr = p.PostRecv()
		p.c.failRemoved()
	}); err != nil || perr != nil {
		t.Fatal(err, perr)
	}
	_, err := early.Await(ctx)
	lost(t, "the receive that was not posted", err)
}

// Rule: if receives were submitted before Connect, and no pass has posted them, Connect posts them before
// it connects the queue pair. Otherwise the peer's first message could be lost on UC.
func TestPreparedReceivesArePostedBeforeConnecting(t *testing.T) {
	server, client := mustOpen(t, Config{Device: "soft1", Reactors: 1}), mustOpen(t, Config{Device: "soft0"})
	uc := PlainOptions{Type: verbs.QPTUC}
	ps, pc := prepare(t, server, uc), prepare(t, client, uc)
	buf, err := server.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	ctx, cancel := context.WithTimeout(testContext(t), 2*time.Second)
	defer cancel()
	c := must.Get(pc.Connect(ctx, ps.Local()))(t)
	var recv Future
	if err := server.shards[0].r.Do(ctx, func() { // the loop runs no pass until this function returns
		if recv, err = ps.PostRecv(buf.Slice()); err != nil {
			return
		}
		ps.c.sh.commands.off = false                                          // so that the steps are taken within join
		ps.c.join(ps.path, ps.own.GID, pc.Local(), func(e error) { err = e }) // the part of Connect that needs the turn
		if err != nil {
			return
		}
		var f Future
		if f, err = c.SendBytes(ctx, []byte("first")); err == nil {
			_, err = f.Await(ctx)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := recv.Await(ctx); err != nil || string(buf.Bytes()[:r.Bytes]) != "first" {
		t.Errorf("the receive ended with %d bytes, the buffer has %q, error %v; want the message %q", r.Bytes, buf.Bytes(), err, "first")
	}
}

// Rule: Connect takes the channel of its context once, and asks for the error only when the context has ended.
func TestConnectAsksItsContextOnce(t *testing.T) {
	rt := mustOpen(t, Config{})
	p := prepare(t, rt, PlainOptions{})
	dones, errs := 0, 0
	ctx := rudeContext{testContext(t), func() { dones++ }, func() { errs++ }}
	must.Get(p.Connect(ctx, p.Local()))(t)
	if dones != 1 || errs != 0 {
		t.Errorf("Connect called Done %d times and Err %d times, want 1 and 0", dones, errs)
	}
}
