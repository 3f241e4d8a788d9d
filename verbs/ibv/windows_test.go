//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: a queue pair asks for BIND_MW and LOCAL_INV only if it is to have windows. Without them its ring is half as
// large on mlx5 (providers/mlx5/verbs.c, mlx5_calc_sq_size), and the device refuses them here.
func TestWindowsAreAskedForOnlyIfWanted(t *testing.T) {
	profiled(t, "mlx5")
	r := newRig(t, Config{})
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	defer null.Close()
	rings := map[bool]uint64{}
	for _, windows := range []bool{false, true} {
		before := null.Stats().Rings
		// The requests of a default connection of the runtime: 256 sends and its own ones, 4 elements and a
		// header, 128 bytes inline.
		qp := must.Get(r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC, Windows: windows,
			Cap: verbs.QPCap{MaxSendWR: 264, MaxRecvWR: 1, MaxSendSGE: 5, MaxRecvSGE: 4, MaxInlineData: 128}}))(t)
		rings[windows] = null.Stats().Rings - before
		must.Do(t, qp.Close())
		if after := null.Stats().Rings; after != before {
			t.Errorf("windows %t: %d bytes of rings are left", windows, after-before)
		}
	}
	const recv, lean, large = 64, 64 << 10, 128 << 10
	if rings[false] != lean+recv || rings[true] != large+recv {
		t.Errorf("the rings take %d bytes without windows and %d with them, want %d and %d", rings[false], rings[true], lean+recv, large+recv)
	}
}
