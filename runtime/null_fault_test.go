//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// The tests of this file inject faults of the device. They run the runtime on the null device: two C
// libraries that are loaded in place of libibverbs and librdmacm. The line "Ensured by" of a test names
// the code that handles the fault. Without this code the test was seen to fail. The words "semantics N"
// cite rule N of docs/reference/semantics.md.

// Rule (semantics 22): if the device refuses the requests of a list from some position on, the
// requests before this position succeed, and the requests from this position on fail with the errno.
// The connection continues to work. Only the last request of the list is signaled, and it is among the
// refused requests. So the completion of another request must retire the posted requests.
// Ensured by: the marker (reactor/post_settle.go, postMarker).
func TestNullBadWRAtEachPosition(t *testing.T) {
	d := newBadDay(t, Config{Spin: -1, Reactors: 1})
	a, _ := d.connect()
	_, remote := d.target(64)
	const n = 5
	sum := 0
	for _, how := range []nulldev.How{nulldev.ByErrno, nulldev.MinusOne, nulldev.Negative} {
		for at := range n {
			f := d.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_send", Count: 1, Err: syscall.ENOMEM, How: how, At: uint32(at)})
			for i, x := range d.batch(a, remote, n) {
				r, err := x.Await(testContext(t))
				switch {
				case i >= at:
					d.isAll(fmt.Sprintf("request %d of a list refused from request %d on", i, at), err, syscall.ENOMEM)
				case err != nil || r.Value != uint64(sum+i):
					t.Errorf("request %d of a list refused from request %d on ended with value %d, error %v; want value %d", i, at, r.Value, err, sum+i)
				}
			}
			if d.null.Hits(f) != 1 {
				t.Errorf("the device refused %d lists, want 1", d.null.Hits(f))
			}
			sum += at
			d.adds(a, remote, sum, 3)
			sum += 3
			d.null.Clear()
		}
	}
}

// Rule: if the device refuses one of the receives that a connection posts first, Dial fails, or the
// dialed connection soon ends. This holds for each position in the list of receives, and for the
// receives of either end. The next Dial succeeds. (The connections have receives of their own.)
// Ensured by: reactor/post_settle.go, recvPostFailed.
func TestNullReceiveRefusedAtEachPosition(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{RecvCredits: DefaultRecvCredits}})
	ctx := testContext(t)
	go func() { // accepts connections until the listener is closed
		for {
			if _, err := d.ln.Accept(ctx); err != nil {
				return
			}
		}
	}()
	for _, at := range []uint32{0, 1, DefaultRecvCredits - 1} {
		f := d.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_recv", Count: 1, Err: syscall.ENOMEM, At: at})
		c, err := d.client.Dial(ctx, d.ln.Addr().String())
		if err == nil { // the device refused a receive of the accepting end
			select {
			case <-c.Done():
			case <-ctx.Done():
				t.Fatalf("the connection has not ended after the device refused receive %d", at)
			}
		}
		if d.null.Hits(f) != 1 {
			t.Errorf("the device refused %d lists of receives, want 1", d.null.Hits(f))
		}
		d.null.Clear()
		if c, err = d.client.Dial(ctx, d.ln.Addr().String()); err != nil {
			t.Fatalf("the next Dial: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if st := d.client.MemoryStats(); st.Buffers != 0 {
		t.Errorf("%d buffers are leased after all connections were closed, want 0", st.Buffers)
	}
	if err := d.ln.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Rule (semantics 29): if a completion queue overruns, the connections that use it fail with ErrOverrun.
// Their outstanding operations end with ErrOverrun, later operations fail, and the peers' ends of the
// connections end, too. The connections can be closed.
// Ensured by: reactor/loop_pass.go, where polled checks the errno of a poll and calls failCQ.
func TestNullOverrun(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	a, b := d.connect()
	_, remote := d.target(64)
	d.adds(a, remote, 0, 10)
	d.fault(nulldev.Fault{Kind: nulldev.Overrun, Count: 1})
	f := must.Get(a.Start(testContext(t), new(FetchAndAddOp(remote, 1))))(t)
	d.ends("the FETCH_ADD whose completion overran the queue", f, reactor.ErrOverrun)
	for _, c := range []*Conn{a, b} {
		select {
		case <-c.Done():
		case <-testContext(t).Done():
			t.Fatal("an end of the connection is still open after the completion queue overran")
		}
	}
	d.isAll("the connection's error", a.Err(), reactor.ErrOverrun)
	if _, err := a.Start(testContext(t), new(FetchAndAddOp(remote, 1))); err == nil {
		t.Error("Start on the failed connection succeeded, want an error")
	}
}

// lateEvents is a margin for busy machines: the tests add it to each bound.
const lateEvents = 4 * time.Second

// Rule (semantics 26): if every completion event is lost, each reactor finds its completions at its
// next recheck.
// Ensured by: reactor/loop_recheck.go.
func TestNullLostEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, b := d.connect()
	f := d.fault(nulldev.Fault{Kind: nulldev.LostEvent})
	// If the server's loop is awake when a message arrives, it finds the completion without an event.
	// Then Stats.MissedEvents does not count the lost event. So the test sends messages until
	// MissedEvents counts one.
	for i := 0; i < 50 && d.server.Stats().MissedEvents == 0; i++ {
		slept := d.server.Stats().Sleeps
		got := b.Recv()
		for d.server.Stats().Sleeps == slept {
			runtime.Gosched()
		}
		from := time.Now()
		must.Get(a.SendBytes(testContext(t), []byte{byte(i)}))(t)
		m, err := got.Await(testContext(t))
		if err != nil {
			t.Fatalf("message %d with every event lost: %v", i, err)
		}
		if took := time.Since(from); took > reactor.DefaultRecheck+lateEvents {
			t.Errorf("message %d took %v, want at most %v and the margin %v", i, took, reactor.DefaultRecheck, lateEvents)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
	if d.null.Hits(f) == 0 || d.server.Stats().MissedEvents == 0 {
		t.Errorf("the device dropped %d events, and Stats.MissedEvents is %d; want both above 0", d.null.Hits(f), d.server.Stats().MissedEvents)
	}
}

// Rule (semantics 26, 27): a spurious event causes only a poll. The reactor acknowledges the event,
// because the destruction of a completion queue waits until all its events are acknowledged.
// Ensured by: reactor/loop_sleep.go, takeEvents, which acknowledges events and does not count them as
// completions.
func TestNullSpuriousEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, _ := d.connect()
	_, remote := d.target(64)
	const rounds = 200
	for i := range rounds {
		if d.null.SpuriousEvents() == 0 {
			t.Fatal("the null device raised 0 spurious events, because no completion queue has a channel; want 1 or more")
		}
		d.adds(a, remote, i, 1)
	}
	ctx := testContext(t)
	for d.client.Stats().Events < rounds && ctx.Err() == nil { // only the loop takes events, when it wakes
		f, err := a.Start(ctx, new(FetchAndAddOp(remote, 0)))
		done(t, f, err)
	}
	if n := d.client.Stats().Events; n < rounds {
		t.Errorf("the client's reactor took %d events, want %d or more", n, rounds)
	}
}

// badDay is a test bed: two runtimes on the null device, and the control that injects the device's
// faults.
type badDay struct {
	t              *testing.T
	null           *nulldev.Control
	cfg            Config // the configuration of the client; the server's differs only in Device
	server, client *Runtime
	ln             *Listener
}

// nullDevice returns the provider of the null device, and its control. When the test ends, nullDevice
// checks that the test has left no objects in the library, and no events that were taken and not
// acknowledged.
func nullDevice(t *testing.T) (*ibv.Provider, *nulldev.Control) {
	t.Helper()
	notOnDevice(t, "the test uses the null device")
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	null := must.Get(nulldev.Open(paths))(t)
	before := null.Stats()
	t.Cleanup(func() {
		after := null.Stats()
		if after.Objects != before.Objects || after.Contexts != before.Contexts || after.Unacked != before.Unacked {
			t.Errorf("after the test the library has %v, %d contexts and %d events not acknowledged; before the test: %v, %d, %d",
				after.Objects, after.Contexts, after.Unacked, before.Objects, before.Contexts, before.Unacked)
		}
		null.Close()
	})
	p := must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	return p, null
}

func newBadDay(t *testing.T, cfg Config) *badDay {
	t.Helper()
	d := &badDay{t: t, cfg: cfg}
	d.cfg.Conn.KeepAlive = -1 // no probes: a fault must not hit a probe instead of a request of the test
	d.cfg.Provider, d.null = nullDevice(t)
	d.cfg.Device = "null1"
	d.server = mustOpen(t, d.cfg)
	d.cfg.Device = "null0"
	d.client = mustOpen(t, d.cfg)
	t.Cleanup(d.null.Clear) // removes the faults before the cleanups of mustOpen close the runtimes
	var err error
	if d.ln, err = d.server.Listen("127.0.0.2:0"); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *badDay) connect() (a, b *Conn) {
	d.t.Helper()
	ctx := testContext(d.t)
	seat, err := d.ln.AcceptAsync()
	if err != nil {
		d.t.Fatal(err)
	}
	if a, err = d.client.Dial(ctx, d.ln.Addr().String()); err != nil {
		d.t.Fatal(err)
	}
	if b, err = seat.Await(ctx); err != nil {
		d.t.Fatal(err)
	}
	return a, b
}

// fault adds the fault f to the null device, and returns the fault's number.
func (d *badDay) fault(f nulldev.Fault) int {
	d.t.Helper()
	n, err := d.null.Add(f)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// target returns a region of the server with n bytes and the rights allAccess, and the
// descriptor of the region. It closes the region when the test ends.
func (d *badDay) target(n int) (*Region, Remote) {
	d.t.Helper()
	region, err := d.server.NewRegion(n, allAccess)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := region.Close(); err != nil {
			d.t.Errorf("closing the region: %v", err)
		}
	})
	remote, err := region.Remote(0, n)
	if err != nil {
		d.t.Fatal(err)
	}
	return region, remote
}

// batch starts n FETCH_ADDs of 1 to the word remote. One pass posts all of them as one list,
// because no pass runs before all are started.
func (d *badDay) batch(c *Conn, remote Remote, n int) (fs []Future) {
	d.t.Helper()
	ctx := testContext(d.t)
	var err error
	if e := c.sh.r.Do(ctx, func() {
		for range n {
			var f Future
			if f, err = c.Start(ctx, new(FetchAndAddOp(remote, 1))); err != nil {
				return
			}
			fs = append(fs, f)
		}
	}); e != nil || err != nil {
		d.t.Fatal(e, err)
	}
	return fs
}

// adds checks that the connection works. It executes n FETCH_ADDs of 1 to the word remote,
// one after another. Their results must be from, from+1, …, from+n-1.
func (d *badDay) adds(c *Conn, remote Remote, from, n int) {
	d.t.Helper()
	for i := range n {
		f, err := c.Start(testContext(d.t), new(FetchAndAddOp(remote, 1)))
		if r := done(d.t, f, err); r.Value != uint64(from+i) {
			d.t.Fatalf("FETCH_ADD %d of %d returned %d, want %d", i, n, r.Value, from+i)
		}
	}
}

// ends awaits f, and checks that its error matches every error of want.
func (d *badDay) ends(what string, f Future, want ...error) {
	d.t.Helper()
	_, err := f.Await(testContext(d.t))
	d.isAll(what, err, want...)
}

// isAll checks that err matches every error of want.
func (d *badDay) isAll(what string, err error, want ...error) {
	d.t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			d.t.Errorf("%s: %v, want %v", what, err, w)
		}
	}
}

// cCalls lists the calls of the two C libraries that the scenario of nth_test.go makes. If a call
// fails, the error of the scenario must match the errno err.
var cCalls = []struct {
	call string
	err  syscall.Errno // 0: the errno that the test injects
	may  bool          // the runtime may repeat the call successfully; then the scenario returns no error
}{
	{call: "ibv_get_device_list"}, {call: "ibv_open_device"}, {call: "ibv_query_device_ex"}, {call: "ibv_query_port"},
	{call: "ibv_alloc_pd"}, {call: "ibv_create_comp_channel"}, {call: "ibv_reg_mr_iova2"},
	{call: "ibv_modify_qp"}, {call: "ibv_post_send"}, {call: "ibv_post_recv"}, {call: "ibv_req_notify_cq"},
	{call: "ibv_poll_cq", err: syscall.EIO}, // the provider ibv reports every failed poll as EIO
	{call: "rdma_create_event_channel"}, {call: "rdma_create_id"}, {call: "rdma_bind_addr"}, {call: "rdma_listen"},
	{call: "rdma_resolve_addr"}, {call: "rdma_resolve_route"}, {call: "rdma_connect"}, {call: "rdma_accept"},
	{call: "rdma_init_qp_attr"}, {call: "rdma_establish"}, {call: "rdma_disconnect"},
	{call: "ibv_dereg_mr"}, {call: "ibv_destroy_qp", may: true}, {call: "ibv_destroy_cq"}, {call: "ibv_destroy_comp_channel"},
	{call: "ibv_dealloc_pd"}, {call: "ibv_close_device"}, {call: "rdma_destroy_id", may: true},
}

// Rule (semantics 23): if a library call fails, the operation that needs the call ends with the errno
// of the call. This holds for each way in which the library may report the errno (nulldev.How). The
// scenario ends, and leaves nothing in the library.
// Ensured by: verbs/ibv/shim.h (the errnos), and every error path of the functions that use shim.h.
func TestNullErrnoOfAnyCall(t *testing.T) {
	p, null := nullDevice(t)
	for _, f := range cCalls {
		for how, name := range map[nulldev.How]string{nulldev.ByErrno: "errno", nulldev.MinusOne: "minus_one", nulldev.Negative: "negative"} {
			if how != nulldev.ByErrno && testing.Short() {
				continue
			}
			t.Run(f.call+"/"+name, func(t *testing.T) {
				before := null.Stats()
				id, err := null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: f.call, Count: 1, Err: syscall.EDQUOT, How: how})
				if err != nil {
					t.Fatal(err)
				}
				defer null.Clear()
				err = nthScenario([2]string{"null0", "null1"})(p)
				want := f.err
				if want == 0 {
					want = syscall.EDQUOT // an errno that only the injected fault returns
				}
				if null.Hits(id) != 1 {
					t.Fatalf("%d calls of %s failed, want 1", null.Hits(id), f.call)
				}
				if !errors.Is(err, want) && !(f.may && err == nil) {
					t.Errorf("the scenario returned %v, want an error that matches %v", err, want)
				}
				after := null.Stats()
				if after.Objects != before.Objects || after.Contexts != before.Contexts || after.Unacked != before.Unacked {
					t.Errorf("after the scenario the library has %v, %d contexts and %d events not acknowledged; before the scenario: %v, %d, %d",
						after.Objects, after.Contexts, after.Unacked, before.Objects, before.Contexts, before.Unacked)
				}
			})
		}
	}
}
