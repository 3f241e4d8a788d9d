package runtime

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// failing() returns a configuration whose provider makes the n-th call of op fail. It also returns
// the plan, which reports the failed call.
func failing(t *testing.T, op string, n int) (Config, *nth.Plan) {
	t.Helper()
	notOnDevice(t, "the n-th call fails")
	p := must.Get(soft.New(soft.Config{}))(t)
	plan := &nth.Plan{Op: op, N: n}
	return Config{Provider: nth.Wrap(p, plan), Spin: -1, NoCallerDriving: true}, plan
}

// Rule: if the runtime fails to take a connection event, it tries again by itself, because the
// channel announces each event only once.
func TestConnectingSurvivesAFailedGetEvent(t *testing.T) {
	notOnDevice(t, "the n-th call fails")
	struck := 0
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cfg, plan := failing(t, "rdma_get_cm_event", n)
			cfg.ConnectTimeout = 15 * time.Second
			a, b := connected(t, cfg) // fails the test if the runtimes do not connect
			echo(t, a, b)
			if _, ok := plan.Injected(); ok {
				struck++
			}
		})
	}
	if struck < 4 {
		t.Errorf("only %d calls were made to fail", struck)
	}
}

// echo sends one message from a to b.
func echo(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx := testContext(t)
	f, err := a.SendBytes(ctx, []byte("hello"))
	done(t, f, err)
	m := must.Get(b.RecvWait(ctx))(t)
	if string(m.Data) != "hello" {
		t.Fatalf("received %q", m.Data)
	}
	m.Release()
}

// named() checks that err names the call that the plan made fail.
func named(t *testing.T, err error, plan *nth.Plan) {
	t.Helper()
	if call, ok := plan.Injected(); !ok || !nth.Names(err, call.Op) {
		t.Errorf("%v failed (%t): the error is %v", call, ok, err)
	}
}

// Rule: if a window cannot be closed when its connection ends, the runtime closes the window after
// the queue pair, because nothing else would close it. Then the window's region can be closed.
func TestWindowThatFailsToCloseGoesWithItsConnection(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %t", busy), func(t *testing.T) {
			cfg, plan := failing(t, "ibv_dealloc_mw", 1)
			plan.Busy = busy
			_, b := connected(t, cfg)
			r, w := opened(t, b, 64)
			bound(t, w, r, 0, 64, verbs.AccessRemoteRead)
			named(t, b.Close(testContext(t)), plan)
			if n := b.rt.dev.Objects().MW; n != 0 {
				t.Errorf("%d windows are left", n)
			}
			if err := r.Close(); err != nil {
				t.Errorf("closing the region: %v", err)
			}
		})
	}
}

// Rule: if any step of ListenPacket fails, the buffers of the PacketConn are released.
func TestDatagramsThatCannotOpenGiveTheirBuffersBack(t *testing.T) {
	for op, n := range map[string]int{ // n is 2 if removalWatch makes the first call of op
		"rdma_create_id": 2, "rdma_bind_addr": 2, "rdma_create_qp": 1, "rdma_listen": 1,
	} {
		t.Run(op, func(t *testing.T) {
			cfg, plan := failing(t, op, n)
			cfg.Reactors = 1
			rt := mustOpen(t, cfg)
			_, err := rt.ListenPacket(":0", Options{})
			named(t, err, plan)
			if err := rt.Close(testContext(t)); err != nil { // fails if a buffer is left; waits for queue pairs that flush
				t.Error(err)
			}
		})
	}
}

// Rule: if the reactor's completion queues have no room for a PacketConn, ListenPacket fails and
// leaves the reactor unchanged. Other connections still get their completions, and the completion
// queues have as much room as before.
func TestDatagramsWithoutRoomHarmNobody(t *testing.T) {
	a, b := connected(t, Config{Reactors: 1, CQEntries: 256, Conn: Options{SendDepth: 8, RecvCredits: 8}})
	room := Options{SendDepth: 100, RecvCredits: 100}
	for range 2 {
		p := mustListenPacket(t, a.rt, room)
		_, err := a.rt.ListenPacket(":0", Options{SendDepth: 200, RecvCredits: 200})
		mistake(t, "more than there is room for", err, reactor.ErrTooMany)
		if err := p.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	echo(t, a, b)
	echo(t, b, a)
}

// Rule: if the device refuses the receives of a PacketConn, the PacketConn fails, because it could
// never receive anything.
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

// Rule: if the peer refuses a Resolve, the error contains the peer's reason.
func TestResolveSaysWhyItWasRefused(t *testing.T) {
	cfg, _ := failing(t, "rdma_accept", 1)
	cfg.Device = "soft0"
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	cfg.Device = "soft1"
	b := mustListenPacket(t, mustOpen(t, cfg), Options{})
	_, err := a.Resolve(testContext(t), b.Addr().String())
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Reason != verbs.RejConsumer || !strings.Contains(e.Text, "rdma_accept") {
		t.Errorf("resolving what refuses: %v", err)
	}
}

// Rule: if the address handle of a Peer is busy when the PacketConn is closed, the runtime tries
// again to close the handle, because nothing else would close it. The PacketConn ends only when the
// handle is closed.
func TestBusyPeerGoesWithItsDatagrams(t *testing.T) {
	cfg, plan := failing(t, "ibv_destroy_ah", 1)
	plan.Busy, cfg.Device = true, "soft0"
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	mustResolve(t, a, a.Addr().String())
	if err := a.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if n := a.rt.dev.Objects().AH; n != 0 {
		t.Errorf("%d address handles are left", n)
	}
}

// Rule: Runtime.Close closes an identifier that was busy and for which the next try to close it is
// scheduled. The scheduled try would come too late: the identifier's channel can be closed only
// after the identifier.
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
			t.Errorf("closing it again: %v", err)
		}
	})
	if err := rt.Close(testContext(t)); err != nil || ends != 1 {
		t.Errorf("closing the runtime: %v; the identifier ended %d times", err, ends)
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

// Rule: when a pass finds that the device is gone, shared receives complete, even if there is no
// connection to report the removal.
func TestSharedReceivesAloneNoticeTheDevicesEnd(t *testing.T) {
	notOnDevice(t, "its device is removed by a script")
	p, err := soft.New(soft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	plan := &nth.Plan{Removed: true}
	s := must.Get(mustOpen(t, Config{Provider: nth.Wrap(p, plan), Spin: -1, Reactors: 1}).NewSharedRecv(2, 0))(t)
	f, _ := postShared(t, s, 64)
	if err := s.sh.r.Do(testContext(t), func() {
		s.sh.r.Flush() // posts the receive
		plan.N = plan.Count() + 1
		s.sh.r.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	_, err = f.Await(testContext(t))
	lost(t, "a shared receive", err)
}

// Rule: all asynchronous events are taken, in order, also if the channel announces them together.
func TestAsyncEventsThatComeTogether(t *testing.T) {
	notOnDevice(t, "ports go down")
	const n = 2*eventsPerPass + 1
	p := must.Get(soft.New(soft.Config{}))(t)
	rt := mustOpen(t, Config{Provider: p, Device: "soft0", Spin: -1, Reactors: 1})
	seen := make(chan verbs.AsyncEventType, n)
	defer rt.WatchDevice(func(ev DeviceEvent) { seen <- ev.Type })()
	ctx := testContext(t)
	if err := rt.shards[0].r.Do(ctx, func() { // no event is taken while this function holds the turn
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
			t.Fatalf("%d of %d events came", i, n)
		}
	}
}

// Rule: if the runtime fails to take an asynchronous event, it tries again by itself, because the
// channel announces each event only once.
func TestFailedGetLosesNoAsyncEvent(t *testing.T) {
	notOnDevice(t, "the n-th call fails, and ports go down")
	struck := 0
	for n := 1; n <= 6; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := must.Get(soft.New(soft.Config{}))(t)
			plan := &nth.Plan{Op: "ibv_get_async_event", N: n}
			rt := mustOpen(t, Config{Provider: nth.Wrap(p, plan), Device: "soft0", Spin: -1, Reactors: 1})
			seen := make(chan verbs.AsyncEventType, 16)
			defer rt.WatchDevice(func(ev DeviceEvent) { seen <- ev.Type })()
			for i, want := range []verbs.AsyncEventType{verbs.EventPortErr, verbs.EventPortActive} {
				if err := p.SetPort("soft0", i == 1); err != nil {
					t.Fatal(err)
				}
				select { // without this wait, the second event could make the reactor take the first one too
				case got := <-seen:
					if got != want {
						t.Fatalf("%v came, want %v", got, want)
					}
				case <-testContext(t).Done():
					t.Fatalf("%v never came", want)
				}
			}
			if _, ok := plan.Injected(); ok {
				struck++
			}
		})
	}
	if struck < 3 {
		t.Errorf("only %d calls were made to fail", struck)
	}
}
