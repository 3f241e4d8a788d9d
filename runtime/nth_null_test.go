//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// nullProvider is the null device, under its libraries loaded as the system's are.
func nullProvider(t *testing.T) verbs.Provider {
	t.Helper()
	notOnDevice(t, "the null device has its own run")
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Rule: the same through libibverbs and librdmacm, loaded at run time.
func TestNthCallFailsOnTheNullDevice(t *testing.T) {
	p := nullProvider(t)
	provider := func() (verbs.Provider, error) { return p, nil }
	o := nth.Drive(t, nth.Scenario{Provider: provider, Run: nthScenario([2]string{"null0", "null1"}), Step: nthStride()})
	t.Log(o)
}

// nthTopicStride is nthStride for one topic of several: a few runs of each by default.
const nthTopicStride = 6

// Rule: the same for what lasts, windows, shared receives and datagrams.
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
				t.Errorf("without a fault %d datagrams did not come", lost)
			}
		})
	}
}

// Rule: who asks for datagrams and is refused learns why, here too.
func TestResolveOverLibibverbsSaysWhyItWasRefused(t *testing.T) {
	cfg := Config{Provider: nth.Wrap(nullProvider(t), &nth.Plan{Op: "rdma_accept", N: 1}), Device: "null0"}
	a := mustListenPacket(t, mustOpen(t, cfg), Options{})
	cfg.Device = "null1"
	b := mustListenPacket(t, mustOpen(t, cfg), Options{})
	_, err := a.Resolve(testContext(t), b.Addr().String())
	if e, ok := errors.AsType[*RejectError](err); !ok || !strings.Contains(e.Text, "rdma_accept") {
		t.Errorf("resolving what refuses: %v", err)
	}
}
