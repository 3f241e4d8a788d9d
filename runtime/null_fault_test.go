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

// These tests inject faults of the device. They run the runtime on the null device, a C library
// that is loaded in place of libibverbs and librdmacm. "Defense" names the code that handles the
// fault; without this code the test was seen to fail. "Semantics N" is rule N of
// docs/reference/semantics.md.

// Rule (semantics 22): if the device refuses a list from some position on, the requests before
// that position succeed, and the other requests fail with the errno. The connection continues to
// work. The last request of the list, the only signaled one, is not posted. So another completion
// must retire the requests that were posted.
// Defense: the marker (reactor/post_settle.go, postMarker).
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
					d.isAll(fmt.Sprintf("request %d of a list refused at %d", i, at), err, syscall.ENOMEM)
				case err != nil || r.Value != uint64(sum+i):
					t.Errorf("request %d of a list refused at %d: %d, %v, want %d", i, at, r.Value, err, sum+i)
				}
			}
			if d.null.Hits(f) != 1 {
				t.Errorf("the list was refused %d times", d.null.Hits(f))
			}
			sum += at
			d.adds(a, remote, sum, 3)
			sum += 3
			d.null.Clear()
		}
	}
}

// Rule: if the device refuses to post one of the first receives of a connection, the connection
// soon ends on both sides. This holds for each position in the list of receives, and for either
// side. The next connection succeeds.
// Defense: reactor/post_settle.go, recvPostFailed.
func TestNullReceiveRefusedAtEachPosition(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	ctx := testContext(t)
	go func() { // until the listener is closed
		for {
			if _, err := d.ln.Accept(ctx); err != nil {
				return
			}
		}
	}()
	for _, at := range []uint32{0, 1, DefaultRecvCredits - 1} {
		f := d.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_recv", Count: 1, Err: syscall.ENOMEM, At: at})
		c, err := d.client.Dial(ctx, d.ln.Addr().String())
		if err == nil { // the accepting side's receive was refused
			select {
			case <-c.Done():
			case <-ctx.Done():
				t.Fatalf("the connection lives with receive %d refused", at)
			}
		}
		if d.null.Hits(f) != 1 {
			t.Errorf("a post of receives was refused %d times", d.null.Hits(f))
		}
		d.null.Clear()
		if c, err = d.client.Dial(ctx, d.ln.Addr().String()); err != nil {
			t.Fatalf("dialing again: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if st := d.client.MemoryStats(); st.Buffers != 0 {
		t.Errorf("%d buffers are still out", st.Buffers)
	}
	if err := d.ln.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Rule (semantics 29): if a completion queue overruns, its connections fail with ErrOverrun.
// Outstanding and later operations end with an error, and the connections can be closed.
// Defense: reactor/loop_pass.go, the functions polled (which checks the errno of a poll) and
// failCQ.
func TestNullOverrun(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	a, b := d.connect()
	_, remote := d.target(64)
	d.adds(a, remote, 0, 10)
	d.fault(nulldev.Fault{Kind: nulldev.Overrun, Count: 1})
	f := must.Get(a.Start(testContext(t), new(FetchAndAddOp(remote, 1))))(t)
	d.ends("an addition whose completion found no room", f, reactor.ErrOverrun)
	for _, c := range []*Conn{a, b} {
		select {
		case <-c.Done():
		case <-testContext(t).Done():
			t.Fatal("a connection over a dead queue goes on, or its peer does")
		}
	}
	d.isAll("the connection's end", a.Err(), reactor.ErrOverrun)
	if _, err := a.Start(testContext(t), new(FetchAndAddOp(remote, 1))); err == nil {
		t.Error("a dead connection takes operations")
	}
}

// lateEvents is a margin for busy machines: an event may come this much later than its bound.
const lateEvents = 4 * time.Second

// Rule (semantics 26): if every completion event is lost, the completions are found at the
// reactor's next recheck, on both sides.
// Defense: reactor/loop_recheck.go.
func TestNullLostEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, b := d.connect()
	f := d.fault(nulldev.Fault{Kind: nulldev.LostEvent})
	// The loop may be awake when the first messages complete. It then finds the completions
	// without an event, and no event is missed. So repeat this until an event was missed.
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
			t.Errorf("message %d took %v, the bound is %v", i, took, reactor.DefaultRecheck)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
	if d.null.Hits(f) == 0 || d.server.Stats().MissedEvents == 0 {
		t.Errorf("%d events were lost, %d missed", d.null.Hits(f), d.server.Stats().MissedEvents)
	}
}

// Rule (semantics 26, 27): a spurious event costs only a poll. It is acknowledged, because the
// destruction of a completion queue waits until all its events are acknowledged.
// Defense: reactor/loop_sleep.go, takeEvents, which acknowledges events and does not count them as
// completions.
func TestNullSpuriousEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, _ := d.connect()
	_, remote := d.target(64)
	const rounds = 200
	for i := range rounds {
		if d.null.SpuriousEvents() == 0 {
			t.Fatal("no queue has a channel")
		}
		d.adds(a, remote, i, 1)
	}
	ctx := testContext(t)
	for d.client.Stats().Events < rounds && ctx.Err() == nil { // the loop takes the events when it wakes
		f, err := a.Start(ctx, new(FetchAndAddOp(remote, 0)))
		done(t, f, err)
	}
	if n := d.client.Stats().Events; n < rounds {
		t.Errorf("%d of %d events were taken", n, rounds)
	}
}

// badDay has two runtimes on the null device, and the control that injects the device's faults.
type badDay struct {
	t              *testing.T
	null           *nulldev.Control
	cfg            Config // the configuration of the client; the server has another Device
	server, client *Runtime
	ln             *Listener
}

// nullDevice returns the provider of the null device, and its control. When the test ends, it must
// not have left objects in the library, or events that were taken and not acknowledged.
func nullDevice(t *testing.T) (*ibv.Provider, *nulldev.Control) {
	t.Helper()
	notOnDevice(t, "the null device has its own run")
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
			t.Errorf("left in the library: %v, %d contexts, %d events; before the test: %v, %d, %d",
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
	d.cfg.Conn.KeepAlive = -1 // the faults are for requests of the test, not for keep-alives
	d.cfg.Provider, d.null = nullDevice(t)
	d.cfg.Device = "null1"
	d.server = mustOpen(t, d.cfg)
	d.cfg.Device = "null0"
	d.client = mustOpen(t, d.cfg)
	t.Cleanup(d.null.Clear) // the runtimes close without faults, unless the test itself closes them
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

func (d *badDay) fault(f nulldev.Fault) int {
	d.t.Helper()
	n, err := d.null.Add(f)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// The method target returns memory of the server with all remote access rights.
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

// The method batch starts n additions to remote. One pass posts all of them, as one list.
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

// The method adds checks that the connection works. It adds 1 to the word n times. The additions
// must find the values from, from+1, …, from+n-1.
func (d *badDay) adds(c *Conn, remote Remote, from, n int) {
	d.t.Helper()
	for i := range n {
		f, err := c.Start(testContext(d.t), new(FetchAndAddOp(remote, 1)))
		if r := done(d.t, f, err); r.Value != uint64(from+i) {
			d.t.Fatalf("addition %d found %d", from+i, r.Value)
		}
	}
}

// The method ends awaits f. The result must be an error that matches every error of want.
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

// cCalls are the calls of the two C libraries that the scenario of nth_test.go makes. If a call
// fails, the scenario's error must contain the errno listed here.
var cCalls = []struct {
	call string
	err  syscall.Errno // 0: the injected errno
	may  bool          // the runtime may make the call again; then the scenario has no error
}{
	{call: "ibv_get_device_list"}, {call: "ibv_open_device"}, {call: "ibv_query_device_ex"}, {call: "ibv_query_port"},
	{call: "ibv_alloc_pd"}, {call: "ibv_create_comp_channel"}, {call: "ibv_reg_mr_iova2"},
	{call: "ibv_modify_qp"}, {call: "ibv_post_send"}, {call: "ibv_post_recv"}, {call: "ibv_req_notify_cq"},
	{call: "ibv_poll_cq", err: syscall.EIO}, // a provider reports every failed poll as EIO
	{call: "rdma_create_event_channel"}, {call: "rdma_create_id"}, {call: "rdma_bind_addr"}, {call: "rdma_listen"},
	{call: "rdma_resolve_addr"}, {call: "rdma_resolve_route"}, {call: "rdma_connect"}, {call: "rdma_accept"},
	{call: "rdma_init_qp_attr"}, {call: "rdma_establish"}, {call: "rdma_disconnect"},
	{call: "ibv_dereg_mr"}, {call: "ibv_destroy_qp", may: true}, {call: "ibv_destroy_cq"}, {call: "ibv_destroy_comp_channel"},
	{call: "ibv_dealloc_pd"}, {call: "ibv_close_device"}, {call: "rdma_destroy_id", may: true},
}

// Rule (semantics 23): if a library call fails, the operation that needed the call ends with the
// errno of the call. This holds for each way in which the library may report the errno
// (nulldev.How). Nothing hangs, and after closing nothing is left.
// Defense: verbs/ibv/shim.h (the errnos), and every error path of its callers.
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
					want = syscall.EDQUOT // no other source returns this one
				}
				if null.Hits(id) != 1 {
					t.Fatalf("the call was made to fail %d times", null.Hits(id))
				}
				if !errors.Is(err, want) && !(f.may && err == nil) {
					t.Errorf("what came of it: %v, want %v in it", err, want)
				}
				after := null.Stats()
				if after.Objects != before.Objects || after.Contexts != before.Contexts || after.Unacked != before.Unacked {
					t.Errorf("left in the library: %v, %d contexts, %d events; before: %v, %d, %d",
						after.Objects, after.Contexts, after.Unacked, before.Objects, before.Contexts, before.Unacked)
				}
			})
		}
	}
}
