package runtime

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// failing(t, op, n) returns a configuration whose provider makes the n-th call of the C function op
// fail. It also returns the plan, which reports the failed call.
func failing(t *testing.T, op string, n int) (Config, *nth.Plan) {
	t.Helper()
	notOnDevice(t, "the test makes the n-th call fail")
	p := must.Get(soft.New(soft.Config{}))(t)
	plan := &nth.Plan{Op: op, N: n}
	return Config{Provider: nth.Wrap(p, plan), Spin: -1, NoCallerDriving: true}, plan
}

// Rule: if rdma_get_cm_event fails, the runtime calls rdma_get_cm_event again, and does not wait for a
// new announcement. The channel announces each event only once.
func TestConnectingSurvivesAFailedGetEvent(t *testing.T) {
	notOnDevice(t, "the test makes the n-th call fail")
	injected := 0 // the number of subtests in which a call failed
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cfg, plan := failing(t, "rdma_get_cm_event", n)
			cfg.ConnectTimeout = 15 * time.Second
			a, b := connected(t, cfg) // fails the test if the runtimes do not connect
			echo(t, a, b)
			if _, ok := plan.Injected(); ok {
				injected++
			}
		})
	}
	if injected < 4 { // connecting makes 4 or more calls, so a call should fail for each n up to 4
		t.Errorf("a call of rdma_get_cm_event failed in %d of 12 subtests, want 4 or more", injected)
	}
}

// Rule: if a completion queue of a server has failed, Accept returns the reason when a peer asks for a
// connection, because no connection can be prepared any more. (Accept waited, and every peer was refused.)
func TestAcceptReportsAFailedQueue(t *testing.T) {
	notOnDevice(t, "the test makes the n-th call fail")
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %v", raw), func(t *testing.T) {
			ctx := testContext(t)
			p := must.Get(soft.New(soft.Config{}))(t)
			plan := &nth.Plan{Op: "ibv_poll_cq", N: 1}
			server := must.Get(Open(Config{Provider: nth.Wrap(p, plan), Conn: Options{Raw: raw}}))(t)
			client := must.Get(Open(Config{Provider: p, Conn: Options{Raw: raw}}))(t)
			t.Cleanup(func() { must.Do(t, client.Close(ctx)); must.Do(t, server.Close(ctx)) })
			ln := must.Get(server.Listen(":0"))(t)
			for first := true; ; first = false {
				dialed := make(chan error, 1)
				go func() { _, err := client.Dial(ctx, ln.Addr().String()); dialed <- err }()
				c, err := ln.Accept(ctx)
				switch {
				case first && err == nil: // the poll fails in this connection
					<-dialed
					<-c.Done()
					continue
				case !errors.Is(err, reactor.ErrOverrun):
					t.Errorf("Accept returned %v, want ErrOverrun", err)
				}
				<-dialed // it may have connected before the poll failed
				return
			}
		})
	}
}

// Rule: if the device makes no queue pair for a request, or does not move its identifier, Accept returns the
// reason, the peer is refused, and the next request is served. But EINVAL means that the peer has
// withdrawn its request: Accept then waits for the next one. (Accept waited in all cases.)
func TestAcceptReportsWhatCannotBePrepared(t *testing.T) {
	notOnDevice(t, "the test makes a call fail")
	for _, x := range []struct {
		raw   bool
		op    string
		errno syscall.Errno
	}{{false, "rdma_create_qp", syscall.ENOMEM}, {true, "rdma_create_qp", syscall.ENOMEM}, {true, "rdma_migrate_id", syscall.ENOSPC}, {true, "rdma_create_qp", syscall.EINVAL}} {
		t.Run(fmt.Sprintf("raw %v %s %v", x.raw, x.op, x.errno), func(t *testing.T) {
			ctx := testContext(t)
			p := must.Get(soft.New(soft.Config{}))(t)
			plan := &nth.Plan{}
			server := must.Get(Open(Config{Provider: nth.Wrap(p, plan), Conn: Options{Raw: x.raw}}))(t)
			client := must.Get(Open(Config{Provider: p, Conn: Options{Raw: x.raw}}))(t)
			t.Cleanup(func() { must.Do(t, client.Close(ctx)); must.Do(t, server.Close(ctx)) })
			ln := must.Get(server.Listen(":0"))(t)
			plan.Fail(x.op, x.errno, 1)
			dial := func() chan error {
				dialed := make(chan error, 1)
				go func() { _, err := client.Dial(ctx, ln.Addr().String()); dialed <- err }()
				return dialed
			}
			accepting := must.Get(ln.AcceptAsync())(t) // a raw listener serves no request before
			first := dial()
			if x.errno != syscall.EINVAL {
				if _, err := accepting.Await(ctx); !errors.Is(err, errPrepare) || !errors.Is(err, x.errno) || !nth.Names(err, x.op) {
					t.Errorf("Accept returned %v, want the failure of %s with %v", err, x.op, x.errno)
				}
				accepting = must.Get(ln.AcceptAsync())(t)
			}
			if _, refused := errors.AsType[*RejectError](<-first); !refused {
				t.Error("the peer of the failed request was not refused")
			}
			second := dial()
			c := must.Get(accepting.Await(ctx))(t)
			must.Do(t, <-second)
			must.Do(t, c.Close(ctx))
		})
	}
}

// Rule: a request that cannot be served while no Accept waits fails the next Accept, and only that. (The
// failure was lost.)
func TestAcceptReportsWhatFailedBefore(t *testing.T) {
	notOnDevice(t, "the test makes a call fail")
	ctx := testContext(t)
	p := must.Get(soft.New(soft.Config{}))(t)
	plan := &nth.Plan{}
	server := must.Get(Open(Config{Provider: nth.Wrap(p, plan)}))(t)
	client := must.Get(Open(Config{Provider: p}))(t)
	t.Cleanup(func() { must.Do(t, client.Close(ctx)); must.Do(t, server.Close(ctx)) })
	ln := must.Get(server.Listen(":0"))(t)
	plan.Fail("rdma_create_qp", syscall.ENOMEM, 1)
	if _, err := client.Dial(ctx, ln.Addr().String()); err == nil {
		t.Fatal("Dial succeeded, although the peer could make no queue pair")
	}
	eventually(t, "the listener keeps the failure", func() (kept bool) {
		must.Do(t, ln.sh.r.Do(ctx, func() { kept = ln.untold != nil }))
		return kept
	})
	if _, err := ln.Accept(ctx); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("Accept returned %v, want the failure with ENOMEM", err)
	}
	dialed := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	accepted := must.Get(ln.Accept(ctx))(t)
	must.Do(t, errors.Join(dialed.Close(ctx), accepted.Close(ctx)))
}

// echo sends one message from a to b, and checks that the message arrives.
func echo(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx := testContext(t)
	f, err := a.SendBytes(ctx, []byte("hello"))
	done(t, f, err)
	m := must.Get(b.RecvWait(ctx))(t)
	if string(m.Data) != "hello" {
		t.Fatalf("received %q, want %q", m.Data, "hello")
	}
	m.Release()
}

// named() checks that the plan made a call fail, and that err names this call.
func named(t *testing.T, err error, plan *nth.Plan) {
	t.Helper()
	switch call, ok := plan.Injected(); {
	case !ok:
		t.Errorf("the plan made no call fail, want one that fails; the error is %v", err)
	case !nth.Names(err, call.Op):
		t.Errorf("%v was made to fail; the error is %v, want an error that names %s", call, err, call.Op)
	}
}

// Rule: if ibv_dealloc_mw fails when a connection ends, the runtime closes the window after the queue
// pair, because no other code would close it. Then the window's region can be closed.
func TestWindowThatFailsToCloseGoesWithItsConnection(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("ibv_dealloc_mw returns ErrBusy: %t", busy), func(t *testing.T) {
			cfg, plan := failing(t, "ibv_dealloc_mw", 1)
			plan.Busy = busy
			_, b := connected(t, cfg)
			r, w := opened(t, b, 64)
			bound(t, w, r, 0, 64, verbs.AccessRemoteRead)
			named(t, b.Close(testContext(t)), plan)
			if n := b.rt.dev.Objects().MW; n != 0 {
				t.Errorf("the device has %d windows after the connection was closed, want 0", n)
			}
			if err := r.Close(); err != nil {
				t.Errorf("closing the region after the connection was closed: %v", err)
			}
		})
	}
}

// Rule: if a step of ListenPacket fails, ListenPacket returns the error of the step and releases the
// buffers of the PacketConn.
func TestDatagramsThatCannotOpenGiveTheirBuffersBack(t *testing.T) {
	for op, n := range map[string]int{ // n is 2 if Open makes the first call of op (for the removalWatch)
		"rdma_create_id": 2, "rdma_bind_addr": 2, "rdma_create_qp": 1, "rdma_listen": 1,
	} {
		t.Run(op, func(t *testing.T) {
			cfg, plan := failing(t, op, n)
			cfg.Reactors = 1
			rt := mustOpen(t, cfg)
			_, err := rt.ListenPacket(":0", Options{})
			named(t, err, plan)
			// Close waits for queue pairs that are being flushed, and fails if a buffer is not released.
			if err := rt.Close(testContext(t)); err != nil {
				t.Errorf("closing the runtime after ListenPacket failed: %v", err)
			}
		})
	}
}

// Rule: if the reactor's completion queues have no room for a PacketConn, ListenPacket fails with
// ErrTooMany. Then other connections still get their completions, and the completion queues have as much
// room as before.
func TestDatagramsWithoutRoomHarmNobody(t *testing.T) {
	a, b := connected(t, Config{Reactors: 1, CQEntries: 256, Conn: Options{SendDepth: 8, RecvCredits: 8}})
	room := Options{SendDepth: 100, RecvCredits: 100}
	fit := 0 // how many have room: the device may grant more entries than CQEntries
	for round := range 2 {
		var all []*PacketConn
		p, err := a.rt.ListenPacket(":0", room)
		for ; err == nil && len(all) < 16; p, err = a.rt.ListenPacket(":0", room) {
			all = append(all, p)
		}
		mistake(t, "ListenPacket with more requests than the completion queues have room for", err, reactor.ErrTooMany)
		if round > 0 && len(all) != fit {
			t.Errorf("there is room for %d packet connections, and before there was for %d", len(all), fit)
		}
		fit = len(all)
		for _, p := range all {
			must.Do(t, p.Close(testContext(t)))
		}
	}
	echo(t, a, b)
	echo(t, b, a)
}

// Rule: if the device refuses the first receives of a PacketConn, ListenPacket fails, or the
// PacketConn ends, because without receives it gets no datagram.
func TestDatagramsWithoutReceivesFail(t *testing.T) {
	cfg, plan := failing(t, "ibv_post_recv", 1)
	p, err := mustOpen(t, cfg).ListenPacket(":0", Options{})
	if err == nil {
		select {
		case <-p.Done():
			err = p.Err()
		case <-testContext(t).Done():
		}
	}
	named(t, err, plan)
}

// Rule: if the peer refuses a Resolve, the error of Resolve contains the peer's reason. In this test the
// peer's rdma_accept fails, and the peer refuses the request with a text that names the call.
func TestResolveSaysWhyItWasRefused(t *testing.T) {
	cfg, _ := failing(t, "rdma_accept", 1)
	cfg.Device = "soft0"
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	cfg.Device = "soft1"
	b := mustListenPacket(t, mustOpen(t, cfg), Options{})
	_, err := a.Resolve(testContext(t), b.Addr().String())
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejConsumer || !strings.Contains(e.Text, "rdma_accept") {
		t.Errorf("Resolve returned %v, want a *RejectError with the reason RejConsumer and a text that names rdma_accept", err)
	}
}

// Rule: if ibv_destroy_ah returns ErrBusy when a PacketConn is closed, the runtime calls ibv_destroy_ah
// again, because no other code would close the address handle. The PacketConn ends only when the handle
// is closed.
func TestBusyPeerGoesWithItsDatagrams(t *testing.T) {
	cfg, plan := failing(t, "ibv_destroy_ah", 1)
	plan.Busy, cfg.Device = true, "soft0"
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	mustResolve(t, a, a.Addr().String())
	if err := a.Close(testContext(t)); err != nil {
		t.Errorf("Close of a PacketConn with a busy address handle returned %v, want nil", err)
	}
	if n := a.rt.dev.Objects().AH; n != 0 {
		t.Errorf("the device has %d address handles after the PacketConn was closed, want 0", n)
	}
}

// Rule: if rdma_destroy_id returned ErrBusy and a timer is set for the next attempt, Runtime.Close
// closes the identifier without waiting for the timer. Runtime.Close also closes the event channel of the
// identifier, and the identifier must be closed before its event channel.
func TestRuntimeClosesIdentifiersThatWereBusy(t *testing.T) {
	cfg, plan := failing(t, "rdma_destroy_id", 1)
	plan.Busy = true
	cfg.stepped, cfg.now = true, func() time.Time { return time.Unix(0, 0) }
	rt := mustOpen(t, cfg)
	s := rt.shards[0]
	id := must.Get(s.cm.CreateID(verbs.PSTCP, 0))(t)
	ends := 0
	s.closeID(id, func(err error) {
		if ends++; err != nil {
			t.Errorf("the second attempt to close the identifier: %v", err)
		}
	})
	if err := rt.Close(testContext(t)); err != nil || ends != 1 {
		t.Errorf("closing the runtime returned %v, want nil; the function given to closeID was called %d times, want 1", err, ends)
	}
}

// Rule: if the device refuses a shared receive, the error names the C function that posts it.
func TestRefusedSharedReceiveNamesItsCall(t *testing.T) {
	cfg, plan := failing(t, "ibv_post_srq_recv", 1)
	s, err := mustOpen(t, cfg).NewSharedRecv(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := postShared(t, s, 64)
	_, err = f.Await(testContext(t))
	named(t, err, plan)
}

// Rule: if a pass finds that the device was removed, shared receives end with ErrDeviceRemoved, even
// if no connection uses them.
func TestSharedReceivesAloneNoticeTheDevicesEnd(t *testing.T) {
	notOnDevice(t, "the provider of the test reports that the device was removed")
	p, err := soft.New(soft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	plan := &nth.Plan{Removed: true}
	s := must.Get(mustOpen(t, Config{Provider: nth.Wrap(p, plan), Spin: -1, Reactors: 1}).NewSharedRecv(2, 0))(t)
	f, _ := postShared(t, s, 64)
	if err := s.sh.r.Do(testContext(t), func() {
		s.sh.r.Flush()            // posts the receive
		plan.N = plan.Count() + 1 // the next batch returns ErrDeviceRemoved
		s.sh.r.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	_, err = f.Await(testContext(t))
	lost(t, "the shared receive", err)
}

// Rule: if the channel announces several asynchronous events together, the runtime takes all of them,
// in order, even if there are more than eventsPerPass events.
func TestAsyncEventsThatComeTogether(t *testing.T) {
	notOnDevice(t, "the test moves a port down and up")
	const n = 2*eventsPerPass + 1
	p := must.Get(soft.New(soft.Config{}))(t)
	rt := mustOpen(t, Config{Provider: p, Device: "soft0", Spin: -1, Reactors: 1})
	seen := make(chan verbs.AsyncEventType, n)
	defer rt.WatchDevice(func(ev DeviceEvent) { seen <- ev.Type })()
	ctx := testContext(t)
	if err := rt.shards[0].r.Do(ctx, func() { // the runtime takes no event while this function holds the turn
		for i := range n {
			if err := p.SetPort("soft0", i%2 == 1); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		select {
		case got := <-seen:
			if want := [2]verbs.AsyncEventType{verbs.EventPortErr, verbs.EventPortActive}[i%2]; got != want {
				t.Errorf("event %d is %v, want %v", i, got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%d events came, want %d", i, n)
		}
	}
}

// Rule: if ibv_get_async_event fails, the runtime calls ibv_get_async_event again, and does not wait for
// a new announcement. The channel announces each event only once.
func TestFailedGetLosesNoAsyncEvent(t *testing.T) {
	notOnDevice(t, "the test makes the n-th call fail, and moves a port down and up")
	injected := 0 // the number of subtests in which a call failed
	for n := 1; n <= 6; n++ {
		plan := &nth.Plan{Op: "ibv_get_async_event", N: n}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := must.Get(soft.New(soft.Config{}))(t)
			rt := mustOpen(t, Config{Provider: nth.Wrap(p, plan), Device: "soft0", Spin: -1, Reactors: 1})
			seen := make(chan verbs.AsyncEventType, 16)
			defer rt.WatchDevice(func(ev DeviceEvent) { seen <- ev.Type })()
			for i, want := range []verbs.AsyncEventType{verbs.EventPortErr, verbs.EventPortActive} {
				if err := p.SetPort("soft0", i == 1); err != nil {
					t.Fatal(err)
				}
				// Wait for each event before the next SetPort. Otherwise the announcement of the second
				// event could make the reactor take the first event, too. Then the test would pass even if
				// the reactor did not repeat the failed call.
				select {
				case got := <-seen:
					if got != want {
						t.Fatalf("the event %v came, want %v", got, want)
					}
				case <-testContext(t).Done():
					t.Fatalf("the event %v did not come", want)
				}
			}
		})
		// The runtime is closed now. Before that, the call behind the last event may be still to come.
		if _, ok := plan.Injected(); ok {
			injected++
		}
	}
	if injected < 3 { // taking two events needs 3 or more calls, so a call should fail for each n up to 3
		t.Errorf("a call of ibv_get_async_event failed in %d of 6 subtests, want 3 or more", injected)
	}
}
