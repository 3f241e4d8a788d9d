//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// nullPaths returns the libraries of the null device; without a C compiler it skips the test.
func nullPaths(t testing.TB) nulldev.Paths {
	t.Helper()
	p, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// opened opens a device of a provider for the length of the test.
func opened(t testing.TB, p *Provider, name string) verbs.Context {
	t.Helper()
	ctx := must.Get(p.Open(name))(t)
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Errorf("closing the context of %s: %v", name, err)
		}
	})
	return ctx
}

// patience is for a device that does its work within the posting call.
const patience = 5 * time.Second

// deviations are the cases in which a device under libibverbs and librdmacm differs, and the
// reasons.
var deviations = func() map[string]string {
	const (
		established = "librdmacm tells the passive side only when the active side takes its event " +
			"(rdma-core librdmacm/cma.c, rdma_get_cm_event: ucma_process_conn_resp), and the case takes the passive side's first"
		key = "the key changes when a binding is posted; who gets a failed completion puts the old one back " +
			"(ibv_bind_mw(3), NOTES; rdma-core providers/rxe/rxe.c, rxe_bind_mw)"
	)
	m := map[string]string{
		"cm_receives_may_be_posted_before_connecting": established,
		"mw2_bound_to_nothing_is_refused":             key,
	}
	for _, t := range []string{"mw1", "mw2"} {
		for _, what := range []string{"bound_without_bind_access", "bound_outside_its_region", "bound_to_a_region_of_another_domain"} {
			m[t+"_cannot_be_"+what] = key
		}
		m[t+"_cannot_give_writing_without_local_write"] = key
	}
	return m
}()

// nullAddrs are the addresses of the two devices: on InfiniBand those of their network interfaces.
var nullAddrs = [2]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}

// nullPair returns both devices of the null library, loaded like the system's.
func nullPair(t *testing.T, name string, cfg Config) verbstest.Pair {
	t.Helper()
	paths := nullPaths(t)
	cfg.Verbs, cfg.RDMACM = paths.Verbs, paths.RDMACM
	p := provider(t, cfg)
	ds, err := p.Devices()
	if err != nil || len(ds) != 2 {
		t.Fatalf("the null library lists %+v, error %v; want two devices", ds, err)
	}
	a, b := opened(t, p, ds[0].Name), opened(t, p, ds[1].Name)
	// The null library returns EINVAL for a region with a window, as Soft-RoCE does.
	a.(*deviceContext).rxe, b.(*deviceContext).rxe = true, true
	caps := must.Get(verbstest.CapsOf(a, b))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst = true, true, true, true
	caps.CMUDP, caps.CMMcast, caps.CQResize, caps.LastWQE = true, true, true, true
	caps.MaxInline = inlineOf(t, a)
	caps.DMABuf = dmabuf(t)
	caps.Deviations, caps.CMOnly = deviationsOf(t, a, b), iwarp(a)
	return verbstest.Pair{
		Name: name, Caps: caps, Patience: patience,
		A: verbstest.Endpoint{Provider: p, Context: a, Addr: nullAddrs[0]}, B: verbstest.Endpoint{Provider: p, Context: b, Addr: nullAddrs[1]},
	}
}

// inlineOf returns the inline capacity of a queue pair, which only creating one reveals.
func inlineOf(t *testing.T, ctx verbs.Context) int {
	t.Helper()
	pd := must.Get(ctx.AllocPD())(t)
	defer pd.Close()
	cq := must.Get(ctx.CreateCQ(1, nil, 0, 0))(t)
	defer cq.Close()
	for n := uint32(1 << 12); n > 0; n /= 2 {
		init := verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: n}}
		if qp, err := pd.CreateQP(&init); err == nil {
			if err := qp.Close(); err != nil {
				t.Fatal(err)
			}
			return int(init.Cap.MaxInlineData)
		}
	}
	return 0
}

// The conformance suite on the null device in loopback mode, through real
// loading.
func TestConformanceNull(t *testing.T) {
	documented(t, verbstest.Run(t, nullPair(t, "ibv_null", Config{})))
}

// The same on completion queues that are polled by ibv_start_poll.
func TestConformanceNullExtendedCQ(t *testing.T) {
	documented(t, verbstest.Run(t, nullPair(t, "ibv_null_extended_cq", Config{ExtendedCQ: true})))
}

func documented(t *testing.T, r *verbstest.Report) {
	t.Helper()
	verbstest.Documented(t, r, "../../docs/conformance.md")
}
