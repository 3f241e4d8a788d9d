package runtime

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// Rule: a connection that is closed while it posts its receives gives all of
// their buffers back, those not posted too.
func TestSetupThatFailsGivesItsBuffersBack(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	opts, err := client.inherit(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.newConn(opts)
	if err != nil {
		t.Fatal(err)
	}
	p, f := client.conns.New(nil)
	c.promise = p
	boom := errors.New("boom")
	c.q.Fail(boom) // what Close does first
	if err := c.sh.r.Do(testContext(t), func() { c.dial(ln.Addr()) }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Await(testContext(t)); !errors.Is(err, boom) || !errors.Is(err, reactor.ErrQueueFailed) {
		t.Fatalf("dialing ended with %v, want the queue's failure", err)
	}
	<-c.closed
	if st := client.MemoryStats(); st.Buffers != 0 {
		t.Fatalf("%d buffers are still out", st.Buffers)
	}
}

// Rule: when the peer is told that it is connected, our receives are with the
// device, though the reactor has made no turn since.
func TestReceivesArePostedBeforeThePeerKnows(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	got := make(chan error, 1)
	c, err := server.newConn(ln.opts) // the loop, which is away, would be told that one is prepared
	if err != nil {
		t.Fatal(err)
	}
	if err := server.shards[0].r.Do(ctx, func() {
		go func() {
			c, err := client.Dial(ctx, ln.Addr().String())
			if err == nil {
				var f Future
				if f, err = c.SendBytes(ctx, []byte("first")); err == nil {
					_, err = f.Await(ctx)
				}
			}
			got <- err
		}()
		ln.backlog.making = makingMost // so that nothing begins of itself
		for r := (*request)(nil); ; {  // the loop is away: only connection events are taken
			select {
			case err := <-got:
				if err != nil {
					t.Errorf("connected, 64 credits, and the first message: %v", err)
				}
				return
			default:
				server.shards[0].takeCM()
			}
			if r == nil && len(ln.backlog.unfinished) > 0 {
				ln.backlog.making = 0
				begun, _, _ := ln.backlog.next(time.Time{}, 1)
				r = begun.req
				delete(ln.sh.targets, r.id)
				c.from, r.conn = r, c
				c.accept(r)
				ln.sh.r.Defer(r.made)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := seat.Await(ctx); err != nil {
		t.Fatal(err)
	}
}

// Rule: a peer that gives credits back before it was given any breaks the
// protocol, and no more.
func TestCreditsBeforeEstablishedAreRefused(t *testing.T) {
	rt := mustOpen(t, Config{})
	opts, err := rt.inherit(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := rt.newConn(opts)
	if err != nil {
		t.Fatal(err)
	}
	var h [frameSize]byte
	proto.Frame{Kind: proto.Credit, Credits: 1}.Encode(&h)
	copy(c.recvs[0].buf.Bytes(), h[:])
	err = c.take(&c.recvs[0], Result{Bytes: frameSize})
	mistake(t, "a credit too early", err, ErrPeerProtocol, "1")
	mistake(t, "giving it up", c.abandon(err), ErrPeerProtocol)
}
