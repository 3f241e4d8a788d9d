//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// profiles are the profiles of the null device that the suite runs on. It needs RC, which EFA does not have. mlx5_vf
// takes half a minute, nearly all of it the waits of its control calls.
var profiles = []string{"mlx4", "mlx5", "mlx5_ib", "mlx5_vf", "irdma", "iwarp", "bnxt_re", "erdma", "hns", "siw", "hugepages"}

// The conformance suite on the null device as each driver's device.
func TestConformanceProfiles(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			profiled(t, name)
			documented(t, verbstest.Run(t, nullPair(t, "ibv_"+name, Config{})))
		})
	}
}
