//go:build linux && cgo && !portable

package runtime

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// profileBeds has nullBed as the device of each driver on which all operations work.
var profileBeds = func() (all []bed) {
	for _, name := range []string{"mlx4", "mlx5", "mlx5_ib", "irdma", "bnxt_re", "erdma"} {
		all = append(all, profileBed(name))
	}
	return all
}()

// profileBed is nullBed with a profile of the null device.
func profileBed(name string) bed {
	return bed{name: name, null: true, open: func(t testing.TB, cfg Config, dev int) *Runtime {
		profile(t, name)
		rt := nullBed.open(t, cfg, dev)
		if name == "mlx5_ib" && !rt.addr.IsValid() {
			// On InfiniBand the address is that of a network interface, which the null device does not have.
			rt.addr = [...]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}[dev]
		}
		return rt
	}}
}

// profile selects a profile of the null device until the test ends.
func profile(t testing.TB, name string) {
	t.Helper()
	must.Do(t, nullControl(t).SetProfile(name))
}
