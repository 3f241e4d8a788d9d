package runtime

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// Rule: a peer that gives up is told to the listener, which forgets its request.
func TestRequestsOfPeersThatGaveUpAreForgotten(t *testing.T) {
	notOnDevice(t, "the kernel tells a program nothing of a request before it accepts it (Linux 6.12 drivers/infiniband/core/ucma.c, ucma_event_handler)")
	server := mustOpen(t, Config{Device: second.name})
	client := mustOpen(t, Config{Device: first.name, ConnectTimeout: time.Hour}) // it is not the timeout that ends the attempt
	ln, err := server.ListenOptions(":0", Options{Raw: true})                    // a managed one connects before anybody accepts
	if err != nil {
		t.Fatal(err)
	}
	pending := func() (n int) {
		if err := ln.sh.r.Do(testContext(t), func() { n = len(ln.backlog.unfinished) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until := func(n int) {
		t.Helper()
		for ctx := testContext(t); pending() != n; {
			if ctx.Err() != nil {
				t.Fatalf("%d requests are pending, want %d", pending(), n)
			}
		}
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
			failed <- err
		}()
		until(1)
		cancel()
		mistake(t, "dialing", <-failed, context.Canceled, ln.Addr().String())
		until(0)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c, err := ln.Accept(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("accepting with nobody there: %v, %v", c, err)
	}
}

// Rule: a future that was discarded takes no request from those who wait.
func TestDiscardedSeatsAreSkipped(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name, Reactors: 2}), mustOpen(t, Config{Device: first.name})
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	var seats []futures.Future[*Conn]
	for range 4 {
		f, err := ln.AcceptAsync()
		if err != nil {
			t.Fatal(err)
		}
		seats = append(seats, f)
	}
	for _, f := range seats[:3] {
		f.Discard()
	}
	c, err := client.Dial(testContext(t), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := seats[3].Await(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.SendBytes(testContext(t), []byte("yours"))
	done(t, f, err)
	m, err := c.RecvWait(testContext(t))
	if err != nil || string(m.Data) != "yours" {
		t.Fatalf("%q, %v", m.Data, err)
	}
	release(t, m)
}

// Rule: Accept passes over a request that cannot be met, and gives the next.
func TestAcceptPassesOverFailedRequests(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln, err := server.Listen("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := ln.Accept(testContext(t))
		got <- err
	}()
	// Reached through a device that is not the listener's.
	if _, err := client.Dial(testContext(t), "127.0.0.3:"+portOf(ln)); err == nil {
		t.Fatal("connected to another device than the listener's")
	}
	if _, err := client.Dial(testContext(t), second.at(portOf(ln))); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("accepting after a request that failed: %v", err)
	}
}

// Rule: a callback of a connection's future may use it, and wait.
func TestCallbackOfAcceptMaySend(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	res := make(chan error, 1)
	ctx := testContext(t)
	seat.Then(func(c *Conn, err error) {
		if err == nil {
			var f Future
			if f, err = c.SendBytes(ctx, []byte("welcome")); err == nil {
				_, err = f.Await(ctx)
			}
		}
		res <- err
	})
	if _, err := client.Dial(ctx, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := <-res; err != nil {
		t.Error(err)
	}
}

// Rule: an attempt that takes too long names the peer, the bound and the option.
func TestConnectTimeoutSaysItsBound(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name, ConnectTimeout: 50 * time.Millisecond})
	ln, err := server.ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true}) // nobody accepts
	mistake(t, "dialing", err, ErrConnectTimeout, ln.Addr().String(), "50ms", "ConnectTimeout")
}

func portOf(ln *Listener) string {
	return strconv.Itoa(int(ln.Addr().Port()))
}

// Rule: dialing for a caller whose context has ended begins nothing, not even
// looking at the address: an answer could be there sooner than anybody looks at
// the context.
func TestDialWithAnEndedContextBeginsNothing(t *testing.T) {
	client := mustOpen(t, Config{})
	_, err := client.Dial(endedContext(), "no address")
	mistake(t, "dialing", err, context.Canceled, "no address")
}
