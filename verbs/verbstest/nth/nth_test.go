package nth_test

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// TestMain fails the run when something is left behind.
func TestMain(m *testing.M) { leak.Main(m) }

func virtual(t *testing.T) (*soft.Provider, *fabric.Fabric) {
	t.Helper()
	f := fabric.New(fabric.Config{Virtual: true, Seed: 1})
	var devs []soft.DeviceConfig
	for i, name := range []string{"left", "right"} {
		devs = append(devs, soft.DeviceConfig{Name: name, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), MTU: verbs.MTU1024})
	}
	p := must.Get(soft.New(soft.Config{Fabric: f, Devices: devs}))(t)
	return p, f
}

// Rule: a wrapped provider without a fault behaves like the provider it wraps: the suite passes
// on both.
func TestWrappedProviderConforms(t *testing.T) {
	p, f := virtual(t)
	w := nth.Wrap(p, &nth.Plan{})
	var ctxs []verbs.Context
	for _, name := range []string{"left", "right"} {
		ctx := must.Get(w.Open(name))(t)
		defer ctx.Close()
		ctxs = append(ctxs, ctx)
	}
	caps := must.Get(verbstest.CapsOf(ctxs[0], ctxs[1]))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst, caps.RandomKeys = true, true, true, true, true
	caps.CQResize, caps.LastWQE, caps.CheckedHandles = true, true, true
	caps.Clock = f
	verbstest.Run(t, verbstest.Pair{Name: "nth_soft_virtual", Caps: caps,
		A: verbstest.Endpoint{Provider: w, Context: ctxs[0]}, B: verbstest.Endpoint{Provider: w, Context: ctxs[1]}})
}

// Rule: the selected call fails, is not carried out, and is named; the calls before and after it
// are carried out.
func TestTheNthCallFails(t *testing.T) {
	p, _ := virtual(t)
	plan := &nth.Plan{N: 3, Errno: syscall.ENOMEM}
	ctx, err := nth.Wrap(p, plan).Open("left") // 1
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	pd, err := ctx.AllocPD() // 2
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	if _, err = ctx.CreateCQ(4, nil, 0, 0); !errors.Is(err, syscall.ENOMEM) || !nth.Names(err, "ibv_create_cq") { // 3
		t.Errorf("the third call answered %v", err)
	}
	if n := ctx.Objects().CQ; n != 0 {
		t.Errorf("the call that failed made %d completion queues", n)
	}
	cq, err := ctx.CreateCQ(4, nil, 0, 0) // 4
	if err != nil {
		t.Fatalf("the fourth call failed: %v", err)
	}
	defer cq.Close()
	if c, ok := plan.Injected(); !ok || c.N != 3 || c.Op != "ibv_create_cq" || !strings.Contains(c.Object, "left") {
		t.Errorf("recorded was %+v, %v", c, ok)
	}
}

// Rule: Fail selects calls at any time, each with its errno and as many as it says; the calls between them are
// carried out.
func TestSelectedCallsFail(t *testing.T) {
	p, _ := virtual(t)
	plan := &nth.Plan{}
	ctx := must.Get(nth.Wrap(p, plan).Open("left"))(t)
	defer ctx.Close()
	cq := must.Get(ctx.CreateCQ(4, nil, 0, 0))(t)
	defer cq.Close()
	plan.Fail("ibv_alloc_pd", syscall.ENOMEM, 2)
	plan.Fail("ibv_req_notify_cq", syscall.EPERM, 1)
	if got := plan.Awaited(); !slices.Equal(got, []string{"ibv_alloc_pd", "ibv_req_notify_cq"}) {
		t.Errorf("the awaited calls are %v, want both", got)
	}
	for range 2 {
		if _, err := ctx.AllocPD(); !errors.Is(err, syscall.ENOMEM) || !nth.Names(err, "ibv_alloc_pd") {
			t.Errorf("ibv_alloc_pd answered %v, want ENOMEM", err)
		}
	}
	must.Do(t, must.Get(ctx.AllocPD())(t).Close())
	turn := verbs.IOBatch{Arms: []verbs.ArmGroup{{CQ: cq}, {CQ: cq}}}
	must.Do(t, ctx.Execute(&turn))
	if turn.Arms[0].Errno != syscall.EPERM || turn.Arms[1].Errno != 0 {
		t.Errorf("the groups answered %+v, want EPERM for the first", turn.Arms)
	}
	if got := plan.Awaited(); got != nil {
		t.Errorf("the awaited calls are %v, want none", got)
	}
	plan.FailOn("right", "ibv_alloc_pd", syscall.ENOMEM, 1)
	must.Do(t, must.Get(ctx.AllocPD())(t).Close())
	plan.FailOn("left", "ibv_alloc_pd", syscall.ENOMEM, 1)
	if _, err := ctx.AllocPD(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("ibv_alloc_pd of the selected device answered %v, want ENOMEM", err)
	}
}

// Rule: each call of an identifier and of its channel that returns an error can be made to fail.
func TestEveryCallOfAnIdentifierFails(t *testing.T) {
	p, _ := virtual(t)
	for _, kind := range []reflect.Type{reflect.TypeFor[verbs.CMID](), reflect.TypeFor[verbs.CMChannel]()} {
		for i := range kind.NumMethod() {
			m := kind.Method(i)
			if n := m.Type.NumOut(); n == 0 || m.Type.Out(n-1) != reflect.TypeFor[error]() {
				continue
			}
			plan := &nth.Plan{}
			ch := must.Get(nth.Wrap(p, plan).CreateCMChannel())(t)
			id := must.Get(ch.CreateID(verbs.PSTCP, 0))(t)
			on := reflect.ValueOf(id)
			if kind == reflect.TypeFor[verbs.CMChannel]() {
				must.Do(t, id.Close())
				on = reflect.ValueOf(ch)
			}
			var args []reflect.Value
			for j := range m.Type.NumIn() {
				args = append(args, reflect.Zero(m.Type.In(j)))
			}
			plan.N = plan.Count() + 1
			out := on.MethodByName(m.Name).Call(args)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, syscall.EIO) {
				t.Errorf("%v.%s answered %v, want EIO", kind, m.Name, err)
			}
			must.Do(t, id.Close())
			must.Do(t, ch.Close())
		}
	}
}

// Rule: in a batch each group is a call, and the other groups are carried out.
func TestOneGroupOfATurnFails(t *testing.T) {
	p, _ := virtual(t)
	plan := &nth.Plan{}
	ctx := must.Get(nth.Wrap(p, plan).Open("left"))(t)
	defer ctx.Close()
	var cqs [3]verbs.CQ
	for i := range cqs {
		cqs[i] = must.Get(ctx.CreateCQ(4, nil, 0, 0))(t)
		defer cqs[i].Close()
	}
	plan.N = plan.Count() + 2 // the second arm
	turn := verbs.IOBatch{Arms: []verbs.ArmGroup{{CQ: cqs[0]}, {CQ: cqs[1]}, {CQ: cqs[2]}}, Polls: []verbs.PollGroup{{CQ: cqs[0]}}}
	if err := ctx.Execute(&turn); err != nil {
		t.Fatal(err)
	}
	if turn.Arms[0].Errno != 0 || turn.Arms[1].Errno != syscall.EIO || turn.Arms[2].Errno != 0 || turn.Polls[0].Errno != 0 {
		t.Errorf("the groups answered %+v %+v", turn.Arms, turn.Polls)
	}
	if c, _ := plan.Injected(); c.Op != "ibv_req_notify_cq" {
		t.Errorf("recorded was %v", c)
	}
}

// Rule: a Close that fails has closed, one that is busy has not.
func TestCloseFailsInTwoWays(t *testing.T) {
	for _, busy := range []bool{false, true} {
		p, _ := virtual(t)
		plan := &nth.Plan{N: 3, Busy: busy}
		if busy {
			plan.N = 1 // only a Close is counted
		}
		ctx, err := nth.Wrap(p, plan).Open("left") // 1
		if err != nil {
			t.Fatal(err)
		}
		pd, err := ctx.AllocPD() // 2
		if err != nil {
			t.Fatal(err)
		}
		err = pd.Close() // 3
		if errors.Is(err, verbs.ErrBusy) != busy || !nth.Names(err, "ibv_dealloc_pd") {
			t.Errorf("busy %v: Close answered %v", busy, err)
		}
		if n := ctx.Objects().PD; (n == 1) != busy {
			t.Errorf("busy %v: %d domains are left", busy, n)
		}
		if err := errors.Join(pd.Close(), ctx.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Rule: a batch that finds its device removed does nothing, nor does any later one; another
// device is unaffected.
func TestRemovedDeviceStaysSo(t *testing.T) {
	p, _ := virtual(t)
	plan := &nth.Plan{N: 2, Removed: true}
	w := nth.Wrap(p, plan)
	var cqs []verbs.CQ
	for _, name := range []string{"left", "right"} {
		ctx := must.Get(w.Open(name))(t)
		defer ctx.Close()
		cq := must.Get(ctx.CreateCQ(4, nil, 0, 0))(t)
		defer cq.Close()
		cqs = append(cqs, cq)
	}
	for i, want := range []error{nil, verbs.ErrDeviceRemoved, verbs.ErrDeviceRemoved} {
		turn := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: cqs[0]}}}
		if err := cqs[0].Context().Execute(&turn); !errors.Is(err, want) {
			t.Errorf("turn %d: %v, want %v", i+1, err, want)
		}
	}
	turn := verbs.IOBatch{Polls: []verbs.PollGroup{{CQ: cqs[1]}}}
	if err := cqs[1].Context().Execute(&turn); err != nil {
		t.Errorf("a turn of the other device: %v", err)
	}
}
