//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// Rule: the same through libibverbs and librdmacm, loaded at run time.
func TestNthCallFailsOnTheNullDevice(t *testing.T) {
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
	provider := func() (verbs.Provider, error) { return p, nil }
	o := nth.Drive(t, nth.Scenario{Provider: provider, Run: nthScenario([2]string{"null0", "null1"}), Step: nthStride()})
	t.Log(o)
}
