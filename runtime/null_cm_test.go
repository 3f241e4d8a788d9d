//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: both ends have the ACK timeout of their own options, at least their device's delay, whether the
// path is of RoCE or of InfiniBand, where the kernel would give the accepting end code 19.
func TestBothEndsHaveTheirOwnTimeoutOnEachTransport(t *testing.T) {
	for profile, delay := range map[string]uint8{nulldev.Plain: 12, "mlx5": 16, "mlx5_ib": 16} {
		for peerTimeout, code := range map[time.Duration]uint8{0: 15, -1: 18, time.Second: 13} {
			t.Run(profile+"/"+peerTimeout.String(), func(t *testing.T) {
				a, b := profileBed(profile).connected(t, Config{Conn: Options{PeerTimeout: peerTimeout}})
				for i, c := range []*Conn{a, b} {
					if attr := must.Get(c.q.QP().Query())(t); attr.Timeout != max(code, delay) {
						t.Errorf("end %d has ACK timeout code %d, want %d", i, attr.Timeout, max(code, delay))
					}
				}
			})
		}
	}
}

// dialed connects two runtimes of the null device, and returns the ends and how long Dial took. A fault of
// the handshake can be scripted before.
func dialed(t *testing.T, cfg Config, o Options) (a, b *Conn, took time.Duration) {
	t.Helper()
	server, client := nullBed.open(t, cfg, 1), nullBed.open(t, cfg, 0)
	ln := must.Get(server.ListenOptions(":0", o))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	from := time.Now()
	a, err := client.DialOptions(testContext(t), ln.Addr().String(), o)
	if took = time.Since(from); err != nil {
		t.Fatalf("Dial failed after %v: %v", took, err)
	}
	return a, must.Get(seat.Await(testContext(t)))(t), took
}

// exchange sends a message from a to b.
func exchange(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx := testContext(t)
	sent, err := a.SendBytes(ctx, []byte("hello"))
	done(t, sent, err)
	m := must.Get(b.RecvWait(ctx))(t)
	if string(m.Data) != "hello" {
		t.Errorf("received %q, want %q", m.Data, "hello")
	}
	must.Do(t, m.Release())
}

// Rule: the default of ConnectTimeout lets the kernel repeat a lost message at least twice. It repeats one after
// 4.3 s, and twice the path's lifetime (Linux cm.c, ib_send_cm_req; cma.c, CMA_CM_RESPONSE_TIMEOUT).
func TestALostMessageOfTheHandshakeDoesNotCostADial(t *testing.T) {
	const kernels = 4300 * time.Millisecond
	if c := must.Get(Config{}.validate())(t); c.ConnectTimeout < 3*kernels {
		t.Errorf("by default Dial takes at most %v, want at least %v", c.ConnectTimeout, 3*kernels)
	}
	null := nullControl(t)
	for name, kind := range map[string]nulldev.FaultKind{"request": nulldev.LostRequest, "ready": nulldev.LostReady} {
		t.Run(name, func(t *testing.T) {
			const after = 30
			must.Get(null.Add(nulldev.Fault{Kind: kind, Count: 1, At: after}))(t)
			defer null.Clear()
			a, b, took := dialed(t, Config{}, Options{})
			if kind == nulldev.LostRequest && took < after*time.Millisecond {
				t.Errorf("Dial took %v, want at least %v: the request was lost", took, after*time.Millisecond)
			}
			exchange(t, a, b)
		})
	}
}

// Rule: a request that is rejected because of a stale connection is repeated with a queue pair of another
// number, redials times and within ConnectTimeout; then Dial returns the rejection.
func TestAStaleConnectionIsDialedAgain(t *testing.T) {
	for _, o := range []Options{{}, {Raw: true}} {
		null := nullControl(t)
		must.Get(null.Add(nulldev.Fault{Kind: nulldev.StaleConnection, Count: redials}))(t)
		a, b, _ := dialed(t, Config{Reactors: 2}, o)
		if !o.Raw {
			exchange(t, a, b)
		}
		client := a.rt
		eventually(t, "the end of the rejected connections", func() bool { return dialing(client) == 1 && queuePairs(client) == 1 })
		null.Clear()

		stale := must.Get(null.Add(nulldev.Fault{Kind: nulldev.StaleConnection}))(t)
		_, err := client.DialOptions(testContext(t), b.LocalAddr().String(), o)
		if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejStaleConn || null.Hits(stale) != 1+redials {
			t.Errorf("Dial of a connection that stays stale, after %d requests: %v, want a *RejectError with reason %d after %d",
				null.Hits(stale), err, verbs.RejStaleConn, 1+redials)
		}
		eventually(t, "the end of the rejected connections", func() bool { return dialing(client) == 1 && queuePairs(client) == 1 })
		null.Clear()
	}
}

// Rule: the queue pairs of stale connections are kept until the attempt ends. A device may give the number of one
// that is gone to the next.
func TestTheQueuePairAfterAStaleConnectionHasAnotherNumber(t *testing.T) {
	null := nullControl(t)
	profile(t, "mlx5_vf") // a queue pair that is given up at once is gone before another one is made, which takes 2 ms
	stale := must.Get(null.Add(nulldev.Fault{Kind: nulldev.StaleConnection, Count: redials}))(t)
	defer null.Clear()
	dialed(t, Config{}, Options{Raw: true})
	if n := null.Hits(stale); n != redials {
		t.Errorf("%d requests had the number of a stale connection, want %d: no number comes again", n, redials)
	}
}

// Rule: a rejection because of a stale connection is left to the program after PrepareDial: it has seen the queue pair,
// and may have posted receives.
func TestAStaleConnectionOfPrepareDial(t *testing.T) {
	null := nullControl(t)
	stale := must.Get(null.Add(nulldev.Fault{Kind: nulldev.StaleConnection, Count: 1}))(t)
	defer null.Clear()
	server, client := nullBed.open(t, Config{}, 1), nullBed.open(t, Config{}, 0)
	ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
	p := must.Get(client.PrepareDial(testContext(t), ln.Addr().String(), Options{}))(t)
	_, err := p.Connect(testContext(t))
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejStaleConn || null.Hits(stale) != 1 {
		t.Errorf("Connect returned %v after %d requests, want a *RejectError with reason %d after one", err, null.Hits(stale), verbs.RejStaleConn)
	}
}

// Rule: data that arrives before the last message of the handshake establishes the accepting end.
func TestDataEstablishesTheAcceptingEnd(t *testing.T) {
	null := nullControl(t)
	must.Do(t, null.SetProfile("mlx5"))
	lost := must.Get(null.Add(nulldev.Fault{Kind: nulldev.LostReady, Count: 1}))(t) // it never comes
	server, client := nullBed.open(t, Config{Reactors: 2}, 1), nullBed.open(t, Config{}, 0)
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	ctx := testContext(t)
	a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	sent, err := a.SendBytes(ctx, []byte("early"))
	done(t, sent, err)
	b := must.Get(seat.Await(ctx))(t)
	m := must.Get(b.RecvWait(ctx))(t)
	if string(m.Data) != "early" || null.Hits(lost) != 1 {
		t.Errorf("received %q with %d messages lost, want %q and 1", m.Data, null.Hits(lost), "early")
	}
	must.Do(t, m.Release())
}

// Rule: a flush that raises no event is found by the recheck, without any other activity.
func TestAFlushWithoutAnEventIsFound(t *testing.T) {
	null := nullControl(t)
	server, client := nullBed.open(t, Config{}, 1), nullBed.open(t, Config{NoCallerDriving: true}, 0)
	ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
	r := must.Get(client.NewRegion(64, verbs.AccessLocalWrite))(t)
	ctx := testContext(t)
	// The loop may be awake when the queue pair is flushed. It then needs no event.
	for tries := 0; client.Stats().MissedEvents == 0; tries++ {
		if tries == 50 {
			t.Fatalf("after %d flushes without an event no event was missed", tries)
		}
		seat := must.Get(ln.AcceptAsync())(t)
		a := must.Get(client.DialOptions(ctx, ln.Addr().String(), Options{Raw: true}))(t)
		b := must.Get(seat.Await(ctx))(t)
		flushed := make(chan error, 1)
		op := PostRecvVOp([]Slice{must.Get(r.Slice(0, 64))(t)})
		before := null.Stats().RecvWRs // and not Runtime.Stats, which has the loop poll
		must.Do(t, a.StartTo(ctx, &op, sinkFunc(func(_ Result, err error) { flushed <- err }), 0))
		eventually(t, "the posting of the receive", func() bool { return null.Stats().RecvWRs > before })
		eventually(t, "an idle loop", func() bool {
			n := null.Stats().Polls
			for range 1000 {
				runtime.Gosched()
			}
			return null.Stats().Polls == n
		})
		must.Get(null.Add(nulldev.Fault{Kind: nulldev.QuietFlush}))(t)
		must.Do(t, a.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		if err := <-flushed; err == nil {
			t.Error("the receive succeeded, want a flush")
		}
		null.Clear()
		must.Do(t, a.Close(ctx))
		must.Do(t, b.Close(ctx))
	}
	must.Do(t, r.Close())
}
