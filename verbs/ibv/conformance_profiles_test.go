//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// profiles are the profiles of the null device that the suite runs on. It needs RC, which EFA does
// not have.
var profiles = []string{"mlx4", "mlx5", "mlx5_ib", "irdma", "iwarp", "bnxt_re", "erdma"}

// The conformance suite on the null device as each driver's device.
func TestConformanceProfiles(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			profiled(t, name)
			documented(t, verbstest.Run(t, nullPair(t, "ibv_"+name, Config{})))
		})
	}
}
