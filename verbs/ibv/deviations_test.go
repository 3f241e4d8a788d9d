//go:build linux && cgo && !portable

package ibv

import (
	"maps"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// drivers are the cases in which the device of a driver differs, and the reasons: a file of rdma-core v64.0,
// and the function. They are true of the profile of the null device as of the device.
var drivers = map[string]map[string]string{
	"bnxt_re": bnxtDeviations,
	"erdma":   erdmaDeviations,
	"hns":     hnsDeviations,
	"irdma":   irdmaDeviations,
	"mlx4":    mlx4Deviations,
	"mlx5":    mlx5Deviations,
}

// driverOf names the driver of a device by its vendor; "" for another.
func driverOf(a *verbs.DeviceAttr) string {
	const mellanox, firstMLX5 = 0x02c9, 4113 // the part of Connect-IB (providers/mlx5/mlx5.c, hca_table)
	switch {
	case a.VendorID == mellanox && a.VendorPartID < firstMLX5:
		return "mlx4"
	case a.VendorID == mellanox:
		return "mlx5"
	}
	return map[uint32]string{0x8086: "irdma", 0x14e4: "bnxt_re", 0x1ded: "erdma", 0x19e5: "hns", 0x1d0f: "efa", 0x626d74: "siw"}[a.VendorID]
}

// deviationsOf returns the deviations of a pair of devices.
func deviationsOf(t *testing.T, ends ...verbs.Context) map[string]string {
	t.Helper()
	all := maps.Clone(deviations)
	for _, ctx := range ends {
		attr := must.Get(ctx.QueryDevice())(t)
		maps.Copy(all, drivers[driverOf(&attr)])
	}
	return all
}

// iwarp reports whether a device is of iWARP. There a queue pair goes to RTS with a connection of TCP alone (Linux
// irdma/verbs.c, irdma_modify_qp: without cm_id EINVAL; cxgb4 and siw likewise).
func iwarp(ctx verbs.Context) bool { return ctx.Device().Transport == verbs.TransportIWARP }

// stateBlind are the cases that a driver fails whose posts look at no state of the queue pair.
func stateBlind(where string) map[string]string {
	why := "posts are taken in any state: a request lies in the queue until the queue pair can execute it (" + where + ")"
	return map[string]string{"sends_before_rts_are_refused": why, "receives_in_reset_are_refused": why}
}

// with returns m with one more case.
func with(m map[string]string, name, why string) map[string]string {
	m[name] = why
	return m
}

// Rule: the table of a device is that of its driver.
func TestTheDriverIsKnownByTheVendor(t *testing.T) {
	for _, profile := range append(profiles, "efa") {
		profiled(t, profile)
		p := provider(t, Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM})
		attr := must.Get(opened(t, p, "null0").QueryDevice())(t)
		want, other := map[string]string{"mlx5_ib": "mlx5", "mlx5_vf": "mlx5", "iwarp": "irdma", "hugepages": ""}[profile]
		if !other {
			want = profile
		}
		if got := driverOf(&attr); got != want {
			t.Errorf("the driver of profile %s, vendor %#x, part %d, is %q, want %q", profile, attr.VendorID, attr.VendorPartID, got, want)
		}
	}
}
