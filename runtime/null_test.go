//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// nullProvider returns the provider ibv on the null device: two C libraries for tests, loaded in place
// of libibverbs and librdmacm.
func nullProvider(t *testing.T) verbs.Provider {
	t.Helper()
	notOnDevice(t, "the test uses the null device")
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	return p
}

// Rule: whichever call of the provider ibv fails, the scenario ends and leaves nothing behind. If the
// scenario returns an error, the error names the call.
func TestNthCallFailsOnTheNullDevice(t *testing.T) {
	p := nullProvider(t)
	provider := func() (verbs.Provider, error) { return p, nil }
	o := nth.Drive(t, nth.Scenario{Provider: provider, Run: nthScenario([2]string{"null0", "null1"}), Step: nthStride()})
	t.Log(o)
}

// nthTopicStride is a factor for scenarios of nthTopics: their default stride is nthStride times
// nthTopicStride, to save time.
const nthTopicStride = 6

// Rule: whichever call of the provider ibv fails in a scenario of nthTopics, the scenario ends and
// leaves nothing behind. If the scenario returns an error, the error names the call.
func TestNthCallOfATopicFailsOnTheNullDevice(t *testing.T) {
	p := nullProvider(t)
	step := nthStride()
	if step > 1 {
		step *= nthTopicStride
	}
	for name, scenario := range nthTopics {
		t.Run(name, func(t *testing.T) {
			lost := 0
			t.Log(nth.Drive(t, nth.Scenario{
				Provider: func() (verbs.Provider, error) { return p, nil },
				Run: func(p verbs.Provider) error {
					lost = 0
					r := &nthPaced{nthRun: nthRun{p: p}, ctx: context.Background(), lost: &lost}
					return r.all([2]string{"null0", "null1"}, scenario)
				},
				Step: step, Gauges: []leak.Gauge{{Name: "objects of ibv", Read: ibv.Live}},
			}))
			if lost > 0 {
				t.Errorf("%d datagrams were lost in the run without a fault, want 0", lost)
			}
		})
	}
}

// Rule: if the peer refuses a Resolve over the provider ibv, the error contains the peer's reason.
func TestResolveOverLibibverbsSaysWhyItWasRefused(t *testing.T) {
	cfg := Config{Provider: nth.Wrap(nullProvider(t), &nth.Plan{Op: "rdma_accept", N: 1}), Device: "null0"}
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	cfg.Device = "null1"
	b := mustListenPacket(t, mustOpen(t, cfg), Options{})
	_, err := a.Resolve(testContext(t), b.Addr().String())
	if e, ok := errors.AsType[*RejectError](err); !ok || !strings.Contains(e.Text, "rdma_accept") {
		t.Errorf("Resolve returned %v, want a *RejectError with a text that names rdma_accept", err)
	}
}

// beds has the beds on which onBeds runs a test.
var beds = []bed{mainBed, nullBed}

// nullBed uses the devices null0 and null1. It uses the provider of the Config, or, if the Config has none,
// the provider ibv on the null device.
var nullBed = bed{name: "null", null: true, open: func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider == nil {
		cfg.Provider = nullBedProvider(t)
	}
	cfg.Device = [...]string{"null0", "null1"}[dev]
	return mustOpen(t, cfg)
}}

// nullBedProvider returns the provider ibv on the null device, in a process with the given network
// interfaces, or with those of the system. When the test ends, nullBedProvider
// checks that no object of ibv is left, and that no two posts within one thread domain overlapped.
func nullBedProvider(t testing.TB, interfaces ...ibv.Interface) verbs.Provider {
	t.Helper()
	if interfaces == nil {
		return nullInterfaces(t, nil)
	}
	return nullInterfaces(t, func() []ibv.Interface { return interfaces })
}

// nullInterfaces is nullBedProvider with interfaces that may change; nil: those of the system.
func nullInterfaces(t testing.TB, interfaces func() []ibv.Interface) verbs.Provider {
	t.Helper()
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	libs := ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}
	if interfaces != nil {
		libs.Interfaces = func() ([]ibv.Interface, error) { return interfaces(), nil }
	}
	p := must.Get(ibv.New(libs))(t)
	t.Cleanup(func() { keptDomains(t, paths) })
	if ibv.Live() == 0 { // true for the first runtime of a test, whose cleanup runs after all runtimes are closed
		t.Cleanup(func() {
			if n := ibv.Live(); n != 0 {
				t.Errorf("%d objects of ibv are left after all runtimes were closed, want 0", n)
			}
		})
	}
	return p
}

// keptDomains fails the test if two posts within one thread domain have overlapped in time since the
// null device was loaded. An overlap means that a goroutine without the turn (the right to run the
// reactor) has used a queue pair. With the driver of a real device, which takes no locks within a
// thread domain, an overlap could corrupt the queue pair or end the process.
func keptDomains(t testing.TB, paths nulldev.Paths) {
	t.Helper()
	null, err := nulldev.Open(paths)
	if err != nil {
		t.Error(err)
		return
	}
	defer null.Close()
	if n := null.Stats().TDRaces; n != 0 {
		t.Errorf("%d posts overlapped with another post of the same thread domain, want 0", n)
	}
}

// Rule (semantics 34): if the device flushes a queue pair only when the queue pair is destroyed, Cancel
// still ends every operation, soon after flushBound.
// Ensured by: runtime/conn_teardown.go, the timer of flushBound in Conn.fail.
func TestNullCancelWithoutAFlush(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true}})
	a, b := d.connect()
	r := must.Get(d.client.NewRegion(64, verbs.AccessLocalWrite))(t)
	local := must.Get(r.Slice(0, 64))(t)
	stuck, err := a.Send(testContext(t), local) // does not complete: the peer has posted no receive
	if err != nil {
		t.Fatal(err)
	}
	receive := must.Get(a.PostRecv(local))(t)
	d.fault(nulldev.Fault{Kind: nulldev.LateFlush})
	if err := a.Cancel(endedContext()); !errors.Is(err, endedContext().Err()) {
		t.Errorf("Cancel with a context that has ended returned %v, want the error of the context", err)
	}
	if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing the region while operations use it returned %v, want %v", err, verbs.ErrBusy)
	}
	from := time.Now()
	if err := a.Cancel(testContext(t)); err != nil {
		t.Fatalf("Cancel returned %v, want nil", err)
	}
	if took := time.Since(from); took > flushBound+lateEvents {
		t.Errorf("Cancel took %v, want at most %v and the margin %v", took, flushBound, lateEvents)
	}
	for what, f := range map[string]Future{"the send": stuck, "the receive": receive} {
		if _, err, ok := f.Poll(); !ok || !errors.Is(err, ErrCancelled) {
			t.Errorf("after Cancel %s is settled: %v, with the error %v; want true and %v", what, ok, err, ErrCancelled)
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region after Cancel: %v", err)
	}
	for _, c := range []*Conn{a, b} {
		if err := c.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

// nullControl opens the null device's control, and closes the control when the test ends.
func nullControl(t testing.TB) *nulldev.Control {
	t.Helper()
	notOnDevice(t, "the test uses the null device")
	paths, err := nulldev.Build()
	if err != nil {
		t.Skip(err)
	}
	null := must.Get(nulldev.Open(paths))(t)
	t.Cleanup(null.Close)
	return null
}

// Rule: if the device supports thread domains and the configuration allows them, each reactor has a
// thread domain. Messages arrive with and without thread domains. Runtime.Close closes all domains.
func TestEachReactorHasAThreadDomain(t *testing.T) {
	null := nullControl(t)
	for _, x := range []struct {
		name  string
		cfg   Config
		fault string // the C call that fails; "": none
		want  int    // the number of thread domains
	}{
		{name: "two_reactors", cfg: Config{Reactors: 2}, want: 4}, // two runtimes with two reactors each
		{name: "switched_off", cfg: Config{NoThreadDomains: true}},
		{name: "no_thread_domains", fault: "ibv_alloc_td"},
		{name: "no_parent_domains", fault: "ibv_alloc_parent_domain"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.fault != "" {
				if _, err := null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: x.fault, Err: syscall.EOPNOTSUPP}); err != nil {
					t.Fatal(err)
				}
				defer null.Clear()
			}
			a, b := nullBed.connected(t, x.cfg)
			if n := null.Stats().Objects.TD; n != x.want {
				t.Errorf("the library has %d thread domains, want %d", n, x.want)
			}
			ctx := testContext(t)
			src := bufferOf(t, a.rt, []byte("hello"))
			sent, err := a.Send(ctx, src.Slice())
			done(t, sent, err)
			m, err := b.RecvWait(ctx)
			if err != nil || string(m.Data) != "hello" {
				t.Fatalf("received %q, error %v; want %q", m.Data, err, "hello")
			}
			if err := errors.Join(m.Release(), src.Release(), a.rt.Close(ctx), b.rt.Close(ctx)); err != nil {
				t.Fatal(err)
			}
			if o := null.Stats().Objects; o.TD != 0 || o.PD != 0 {
				t.Errorf("after both runtimes were closed the library has %v, want no thread domain and no protection domain", o)
			}
		})
	}
}

// Rule: no two posts within one thread domain overlap, even if several goroutines submit, run the
// reactor, dial and close at the same time. In the profile mlx5 an overlap ends the process.
func TestThreadDomainIsKeptByAllWhoPost(t *testing.T) {
	null := nullControl(t)
	for _, profile := range []string{nulldev.Plain, "mlx5"} {
		t.Run(profile, func(t *testing.T) {
			must.Do(t, null.SetProfile(profile))
			keepThreadDomains(t, null)
		})
	}
}

func keepThreadDomains(t *testing.T, null *nulldev.Control) {
	const (
		conns, posters = 4, 3
		writes, churns = 50, 30
		size           = 256 << 10 // the null device copies the bytes within the post, so the post takes time
	)
	cfg := Config{Reactors: 2}
	server, client := nullBed.open(t, cfg, 1), nullBed.open(t, cfg, 0)
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	dial := func() (a, b *Conn, err error) {
		seat, err := ln.AcceptAsync()
		if err != nil {
			return nil, nil, err
		}
		if a, err = client.Dial(ctx, ln.Addr().String()); err != nil {
			return nil, nil, err
		}
		b, err = seat.Await(ctx)
		return a, b, err
	}
	var wg sync.WaitGroup
	for range conns {
		a, b, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		r := must.Get(b.rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
		at := must.Get(r.Remote(0, size))(t)
		for range posters {
			src := bufferOf(t, a.rt, make([]byte, size))
			wg.Go(func() {
				for range writes {
					if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
						t.Errorf("a WRITE: %v", err)
						return
					}
				}
			})
		}
	}
	wg.Go(func() { // creates queue pairs and posts receives while the other goroutines write
		for range churns {
			a, b, err := dial()
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(a.Close(ctx), b.Close(ctx)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	if s := null.Stats(); s.TDRaces != 0 || s.Objects.TD == 0 {
		t.Errorf("the library has %d thread domains, want 1 or more; %d posts overlapped with another post of the same thread domain, want 0",
			s.Objects.TD, s.TDRaces)
	}
}
