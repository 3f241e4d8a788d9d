//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// wanted is what a connection of the runtime asks for by default.
var wanted = verbs.QPCap{MaxSendWR: 150, MaxRecvWR: 128, MaxSendSGE: 5, MaxRecvSGE: 4, MaxInlineData: 128}

// profiledContext opens the null device with a profile.
func profiledContext(t *testing.T, profile string) *deviceContext {
	t.Helper()
	p := provider(t, Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM})
	profiled(t, profile)
	return opened(t, p, "null0").(*deviceContext)
}

// Rule: QPLimits finds what a driver has, whether it refuses more with EINVAL (irdma, erdma) or with NULL and no errno
// (bnxt_re), or grants less (hns); and a queue pair of that size is granted.
func TestLimitsAreFound(t *testing.T) {
	for _, c := range []struct {
		profile            string
		inline, send, recv uint32
	}{
		{nulldev.Plain, 128, 5, 4},
		{"mlx5", 128, 5, 4},
		{"irdma", 101, 5, 4},
		{"iwarp", 48, 3, 3},
		{"bnxt_re", 96, 5, 4},
		{"erdma", 96, 5, 1},
		{"hns", 32, 5, 4},
		{"siw", 80, 5, 4},
	} {
		t.Run(c.profile, func(t *testing.T) {
			ctx := profiledContext(t, c.profile)
			want := wanted
			want.MaxInlineData, want.MaxSendSGE, want.MaxRecvSGE = c.inline, c.send, c.recv
			got := must.Get(ctx.QPLimits(verbs.QPTRC, wanted, true))(t)
			if got != want {
				t.Errorf("the limits are %+v, want %+v", got, want)
			}
			granted := grant(t, ctx, got, true)
			if smaller(granted, got) != got {
				t.Errorf("a queue pair of %+v is granted %+v", got, granted)
			}
		})
	}
}

// grant makes a queue pair of c, and returns what it is granted.
func grant(t *testing.T, ctx *deviceContext, c verbs.QPCap, windows bool) verbs.QPCap {
	t.Helper()
	pd := must.Get(ctx.AllocPD())(t)
	cq := must.Get(ctx.CreateCQ(1, nil, 0, 0))(t)
	init := &verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: c, Windows: windows}
	qp, err := pd.CreateQP(init)
	if err == nil {
		must.Do(t, qp.Close())
	} else {
		init.Cap = verbs.QPCap{}
		t.Logf("creating a queue pair: %v", err)
	}
	must.Do(t, cq.Close())
	must.Do(t, pd.Close())
	return init.Cap
}

// Rule: where the depth depends on the size of a request, by blocks (mlx5) or by quanta (irdma), QPLimits returns the
// largest depth at that size; and requests of windows are larger for libmlx5 only.
func TestDepthIsFoundAtTheSizeWanted(t *testing.T) {
	for _, profile := range []string{"mlx5", "irdma"} {
		ctx := profiledContext(t, profile)
		want := wanted
		want.MaxInlineData, want.MaxSendWR = 101, uint32(1<<15)
		depths := map[bool]uint32{}
		for _, windows := range []bool{true, false} {
			got := must.Get(ctx.QPLimits(verbs.QPTRC, want, windows))(t)
			depths[windows] = got.MaxSendWR
			if got.MaxSendWR >= want.MaxSendWR || grant(t, ctx, got, windows) == (verbs.QPCap{}) {
				t.Errorf("%s, windows %v: the depth is %d, want one that is granted, below %d", profile, windows, got.MaxSendWR, want.MaxSendWR)
			}
			more := got
			more.MaxSendWR++
			if granted := grant(t, ctx, more, windows); granted != (verbs.QPCap{}) {
				t.Errorf("%s, windows %v: the depth is %d, but %d is granted", profile, windows, got.MaxSendWR, more.MaxSendWR)
			}
		}
		if larger := depths[false] > depths[true]; larger != (profile == "mlx5") {
			t.Errorf("%s: the depth is %d with windows and %d without", profile, depths[true], depths[false])
		}
	}
}

// Rule: a queue pair without receives is made, and its limits are found, where the driver wants at least one.
func TestAQueuePairNeedsNoReceives(t *testing.T) {
	ctx := profiledContext(t, "erdma")
	want := verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 2, MaxInlineData: 128}
	got := must.Get(ctx.QPLimits(verbs.QPTRC, want, false))(t)
	if got.MaxSendWR != 64 || got.MaxSendSGE != 2 || got.MaxInlineData != 96 || got.MaxRecvWR != 0 {
		t.Errorf("the limits are %+v, want 64 sends of 2 elements, 96 bytes inline and no receives", got)
	}
	if granted := grant(t, ctx, got, false); granted.MaxSendWR < 64 {
		t.Errorf("a queue pair of %+v is granted %+v", got, granted)
	}
}

// Rule: E2BIG is a refusal, as EINVAL is: the capacities are looked for.
func TestTooBigIsARefusal(t *testing.T) {
	ctx := profiledContext(t, nulldev.Plain)
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	t.Cleanup(null.Close)
	must.Get(null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_create_qp_ex", Count: 1, Err: syscall.E2BIG}))(t)
	before := null.Calls("ibv_create_qp_ex")
	must.Get(ctx.QPLimits(verbs.QPTRC, wanted, true))(t)
	if n := null.Calls("ibv_create_qp_ex") - before; n < 2 {
		t.Errorf("after E2BIG %d queue pairs were tried, want more", n)
	}
}

// Rule: the device is asked once for a kind of queue pair.
func TestLimitsAreKept(t *testing.T) {
	ctx := profiledContext(t, "irdma")
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	t.Cleanup(null.Close)
	first := must.Get(ctx.QPLimits(verbs.QPTRC, wanted, true))(t)
	before := null.Calls("ibv_create_qp")
	if again := must.Get(ctx.QPLimits(verbs.QPTRC, wanted, true))(t); again != first || null.Calls("ibv_create_qp") != before {
		t.Errorf("asked again, the limits are %+v after %d creations, want %+v after none", again, null.Calls("ibv_create_qp")-before, first)
	}
}

// Rule: QueryDevice lists the types of which the device makes queue pairs, and no others; creating one of another type
// is ErrNotSupported and says what there is.
func TestQueuePairTypesAreProbed(t *testing.T) {
	rc, uc, ud := verbs.QPTRC, verbs.QPTUC, verbs.QPTUD
	xrc := []verbs.QPType{verbs.QPTXRCSend, verbs.QPTXRCRecv}
	for profile, want := range map[string][]verbs.QPType{
		nulldev.Plain: append([]verbs.QPType{rc, uc, ud}, xrc...),
		"mlx5":        append([]verbs.QPType{rc, uc, ud}, xrc...),
		"irdma":       {rc, ud},
		"iwarp":       {rc},
		"siw":         {rc},
		"bnxt_re":     {rc, ud},
		"erdma":       {rc},
		"efa":         {ud},
		"hns":         append([]verbs.QPType{rc}, xrc...),
	} {
		t.Run(profile, func(t *testing.T) {
			ctx := profiledContext(t, profile)
			if got := must.Get(ctx.QueryDevice())(t).QPTypes; !slices.Equal(got, want) {
				t.Errorf("the types are %v, want %v", got, want)
			}
			pd := must.Get(ctx.AllocPD())(t)
			defer func() { must.Do(t, pd.Close()) }()
			cq := must.Get(ctx.CreateCQ(1, nil, 0, 0))(t)
			defer func() { must.Do(t, cq.Close()) }()
			for _, typ := range []verbs.QPType{rc, uc, ud} {
				qp, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: typ, Cap: least(typ)})
				if slices.Contains(want, typ) {
					must.Do(t, err)
					must.Do(t, qp.Close())
				} else if !errors.Is(err, verbs.ErrNotSupported) || !errors.Is(err, syscall.EOPNOTSUPP) {
					t.Errorf("creating a queue pair of type %v returned %v, want ErrNotSupported", typ, err)
				}
			}
			if _, err := ctx.QPLimits(verbs.QPTUC, wanted, true); slices.Contains(want, uc) != (err == nil) {
				t.Errorf("the limits of type UC: %v", err)
			}
		})
	}
}

// Rule: probing leaves no object behind.
func TestProbingLeavesNothing(t *testing.T) {
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	t.Cleanup(null.Close)
	for _, profile := range null.Profiles() {
		ctx := profiledContext(t, profile)
		before := null.Stats().Objects
		must.Get(ctx.QueryDevice())(t)
		_, _ = ctx.QPLimits(verbs.QPTRC, wanted, true) // an error where there is no RC
		if after := null.Stats().Objects; after != before || !ctx.Objects().Zero() {
			t.Errorf("%s: probing left %v, there was %v", profile, after, before)
		}
	}
}
