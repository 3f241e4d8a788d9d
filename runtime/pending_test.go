package runtime

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// listenRaw returns a raw listener of rt.
func listenRaw(t testing.TB, rt *Runtime) *Listener {
	t.Helper()
	ln := must.Get(rt.ListenOptions(":0", Options{Raw: true}))(t)
	return ln
}

// prepareDial(t, rt, ln) returns the Pending of a PrepareDial to ln, and closes it when the test ends.
func prepareDial(t testing.TB, rt *Runtime, ln *Listener) *Pending {
	t.Helper()
	p := must.Get(rt.PrepareDial(testContext(t), ln.Addr().String(), Options{}))(t)
	t.Cleanup(func() {
		if err := p.Close(testContext(t)); err != nil {
			t.Errorf("closing a Pending: %v", err)
		}
	})
	return p
}

// connecting() calls p.Connect on a new goroutine. The channel gets the result.
func connecting(t testing.TB, p *Pending) <-chan connectEnd {
	end, ctx := make(chan connectEnd, 1), testContext(t)
	go func() {
		c, err := p.Connect(ctx)
		end <- connectEnd{c, err}
	}()
	return end
}

// connectEnd has the results of Pending.Connect or Runtime.DialOptions.
type connectEnd struct {
	c   *Conn
	err error
}

// asking() dials a raw connection on a new goroutine. The channel gets the result.
func asking(ctx context.Context, rt *Runtime, ln *Listener) <-chan connectEnd {
	end := make(chan connectEnd, 1)
	go func() {
		c, err := rt.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
		end <- connectEnd{c, err}
	}()
	return end
}

// Rule: if a receive is posted before Connect, it takes the peer's first message. This holds for the
// dialing end and for the accepting end.
func TestPendingConnection(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{Reactors: 2}, 1), b.open(t, Config{}, 0)
		ln := listenRaw(t, server)
		var recvs [2]Future
		var bufs [2]Buffer
		post := func(i int, rt *Runtime, p *Pending) {
			buf := must.Get(rt.Alloc(100))(t)
			t.Cleanup(func() { buf.Release() })
			recvs[i] = must.Get(p.PostRecv(buf.Slice()))(t)
			bufs[i] = buf
		}
		pc := prepareDial(t, client, ln)
		if pc.RemoteAddr() != ln.Addr() {
			t.Errorf("RemoteAddr of the dialing Pending is %v, want %v", pc.RemoteAddr(), ln.Addr())
		}
		post(0, client, pc)
		dialed := connecting(t, pc)
		ps, err := ln.PrepareAccept(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		post(1, server, ps)
		ends := [2]*Conn{}
		ends[1] = must.Get(ps.Connect(testContext(t)))(t)
		d := <-dialed
		if ends[0], err = d.c, d.err; err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{1, 0} { // the dialing end sends first, as iWARP requires
			c := ends[i]
			f, err := ends[1-i].SendBytes(testContext(t), []byte("at once"))
			done(t, f, err)
			if r := done(t, recvs[i], nil); string(bufs[i].Bytes()[:r.Bytes]) != "at once" {
				t.Errorf("end %d received %q, want %q", i, bufs[i].Bytes()[:r.Bytes], "at once")
			}
			if got := c.RemoteAddr().Addr(); got != ends[1-i].LocalAddr().Addr() {
				t.Errorf("end %d is connected to %v, want %v", i, got, ends[1-i].LocalAddr().Addr())
			}
		}
		if _, err := ps.Connect(testContext(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("the second Connect returned %v, want ErrClosed", err)
		}
		if err := ps.Close(testContext(t)); err != nil || ends[1].Err() != nil {
			t.Errorf("Close of the connected Pending returned %v, and then Err of the connection %v; want nil for both", err, ends[1].Err())
		}
	})
}

// Rule: if the receive is posted before Connect, the peer's first message causes no RNR NAK, even if the
// peer sends as soon as it is connected. If the receive is posted after Connect, the message causes RNR
// NAKs. Both hold for the dialing end and for the accepting end.
func TestPendingReceivesAreThereBeforeThePeerSends(t *testing.T) {
	notOnDevice(t, "the test reads the packets of the software RNIC")
	for name, early := range map[string]bool{"posted before Connect": true, "posted after Connect": false} {
		for side, weDial := range map[string]bool{"dialing end": true, "accepting end": false} {
			t.Run(name+", "+side, func(t *testing.T) { sendsAtOnce(t, early, weDial) })
		}
	}
}

// sendsAtOnce connects a Pending to a peer that sends a message as soon as it is connected. If early is
// true, the receive of the Pending is posted before Connect, otherwise after the first RNR NAK. If weDial
// is true, the Pending is the dialing end, otherwise the accepting end.
func sendsAtOnce(t *testing.T, early, weDial bool) {
	fab := fabric.New(fabric.Config{})
	p := must.Get(soft.New(soft.Config{Fabric: fab, Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1")}, {Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2")},
	}}))(t)
	var naks atomic.Int64
	nak := make(chan struct{}, 1)
	fab.SetTrace(func(ev fabric.Event) {
		var h wire.Header
		if _, err := wire.Parse(ev.Hdr, &h); err == nil && h.Opcode.Ext()&wire.ExtAETH != 0 && h.Syndrome.Kind() == wire.KindRNRNak {
			naks.Add(1)
			select {
			case nak <- struct{}{}:
			default:
			}
		}
	}, false)
	us, them := mainBed.open(t, Config{Provider: p}, 0), mainBed.open(t, Config{Provider: p}, 1)
	ctx := testContext(t)
	var from, buf Buffer
	for rt, b := range map[*Runtime]*Buffer{them: &from, us: &buf} {
		*b = must.Get(rt.Alloc(8))(t)
		defer b.Release()
	}
	sent := make(chan error, 1)
	sends := func(c *Conn, err error) { // sends one message over the new connection c
		if err == nil {
			var f Future
			if f, err = c.Send(ctx, from.Slice()); err == nil {
				_, err = f.Await(ctx)
			}
		}
		sent <- err
	}
	var ours *Pending
	if weDial {
		ln := listenRaw(t, them)
		go func() { sends(ln.Accept(ctx)) }()
		ours = prepareDial(t, us, ln)
	} else {
		ln := listenRaw(t, us)
		go func() { sends(them.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})) }()
		ours = must.Get(ln.PrepareAccept(ctx))(t)
	}
	var recv Future
	if early {
		recv = must.Get(ours.PostRecv(buf.Slice()))(t)
	}
	c := must.Get(ours.Connect(ctx))(t)
	if !early {
		<-nak
		recv = must.Get(c.PostRecv(buf.Slice()))(t)
	}
	if r := done(t, recv, nil); r.Bytes != 8 {
		t.Errorf("received %d bytes, want 8", r.Bytes)
	}
	if err := <-sent; err != nil {
		t.Errorf("the peer's message: %v", err)
	}
	if n := naks.Load(); (n == 0) != early {
		t.Errorf("the message caused %d RNR NAKs; the receive was posted before Connect: %v; want 0 NAKs if true, otherwise 1 or more", n, early)
	}
}

// Rule: if a Pending of PrepareDial is closed, its receives end with ErrConnClosed. If a Pending of
// PrepareAccept is closed, the peer's Dial fails with a *RejectError. Runtime.Close closes every Pending
// that is not connected.
func TestPendingIsClosed(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		ln := listenRaw(t, server)
		ctx := testContext(t)
		pc := prepareDial(t, client, ln)
		recv := must.Get(pc.PostRecv())(t)
		if err := pc.Close(ctx); err != nil {
			t.Error(err)
		}
		if _, err := recv.Await(ctx); !errors.Is(err, ErrConnClosed) {
			t.Errorf("the receive of a closed Pending ended with %v, want ErrConnClosed", err)
		}
		if _, err := pc.Connect(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("Connect of a closed Pending returned %v, want ErrClosed", err)
		}
		dialed := asking(ctx, client, ln)
		ps := must.Get(ln.PrepareAccept(ctx))(t)
		if err := ps.Close(ctx); err != nil {
			t.Error(err)
		}
		d := <-dialed
		if _, rejected := errors.AsType[*RejectError](d.err); !rejected {
			t.Errorf("the dial returned %v after the Pending of the listener was closed, want a *RejectError", d.err)
		}
		left := prepareDial(t, client, ln)
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
		if _, err := left.Connect(ctx); err == nil {
			t.Error("Connect after the runtime was closed succeeded, want an error")
		}
	})
}

// Rule: if PrepareAccept has returned a Pending, the listener can accept other requests and be closed
// before the Pending is connected. The Pending can still be connected.
func TestPendingRequestIsItsOwners(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		ln := listenRaw(t, server)
		ctx := testContext(t)
		first := asking(ctx, client, ln)
		ps := must.Get(ln.PrepareAccept(ctx))(t)
		second := asking(ctx, client, ln)
		if _, err := ln.Accept(ctx); err != nil {
			t.Fatal(err)
		}
		if d := <-second; d.err != nil {
			t.Fatalf("the second dial, which the listener accepted: %v", d.err)
		}
		if err := ln.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := ln.PrepareAccept(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("PrepareAccept of a closed listener returned %v, want ErrClosed", err)
		}
		s := must.Get(ps.Connect(ctx))(t)
		d := <-first
		if d.err != nil {
			t.Fatalf("the first dial, whose Pending was connected after the listener was closed: %v", d.err)
		}
		say(t, d.c, s, "the listener has gone")
	})
}

// Rule: if the peer gives up while its request is pending, Connect fails or returns a connection that
// ends, and the listener can accept the next request. If the context of PrepareAccept has ended,
// PrepareAccept fails and takes no request from the listener.
func TestPendingWhosePeerGaveUp(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
		ln := listenRaw(t, server)
		ctx, giveUp := context.WithCancel(testContext(t))
		dialed := asking(ctx, client, ln)
		ps := must.Get(ln.PrepareAccept(testContext(t)))(t)
		giveUp()
		if d := <-dialed; !errors.Is(d.err, context.Canceled) {
			t.Errorf("the canceled dial returned %v, want context.Canceled", d.err)
		}
		// The software RNIC reports soon that the peer gave up. The kernel, and the null device, may report
		// this only after Connect.
		if b.name == mainBed.name && !onDevice {
			<-ps.c.Done()
		}
		c, err := ps.Connect(testContext(t))
		if err == nil {
			<-c.Done() // Connect returned before the report came; when the report comes, it ends the connection
		} else if !causedByPeer(err) {
			t.Errorf("Connect to a peer that gave up returned %v, want an error that the peer caused (causedByPeer)", err)
		}
		if err := ps.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		if _, err := ln.PrepareAccept(givenUp); !errors.Is(err, errGivenUp) {
			t.Errorf("PrepareAccept with a context that has ended returned %v, want context.Canceled", err)
		}
		pc := prepareDial(t, client, ln)
		again := connecting(t, pc)
		ps = must.Get(ln.PrepareAccept(testContext(t)))(t)
		if _, err := ps.Connect(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if d := <-again; d.err != nil {
			t.Errorf("Connect of the next dial: %v", d.err)
		}
	})
}

// Rule: if the listener is managed, PrepareAccept returns ErrMode, because a managed connection posts its
// own receives. If an option is invalid, PrepareDial returns ErrConfig.
func TestPendingIsRaw(t *testing.T) {
	rt := mustOpen(t, Config{Device: first.name})
	ln, err := rt.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = ln.PrepareAccept(testContext(t))
	mistake(t, "PrepareAccept of a managed listener", err, ErrMode)
	_, err = rt.PrepareDial(testContext(t), first.at("1"), Options{SendDepth: -1})
	mistake(t, "PrepareDial with a negative SendDepth", err, ErrConfig, "SendDepth")
}
