//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
)

// profileBeds has nullBed as the device of each driver that has connections. Without efa, which is refused,
// and mlx5_vf, which is mlx5 without atomics and with control calls of 2 ms: its tests are in dials_test.go, and all of the beds
// would take 14 s.
var profileBeds = func() (all []bed) {
	for _, name := range []string{"mlx4", "mlx5", "mlx5_ib", "irdma", "bnxt_re", "erdma", "iwarp", "hns", "siw"} {
		all = append(all, profileBed(name))
	}
	return all
}()

// profileBed is nullBed with a profile of the null device.
func profileBed(name string) bed {
	return bed{name: name, null: true, open: func(t testing.TB, cfg Config, dev int) *Runtime {
		profile(t, name)
		if (name == "mlx5_ib" || name == "iwarp" || name == "siw") && cfg.Provider == nil {
			cfg.Provider = nullBedProvider(t, netdevs()...)
		}
		return nullBed.open(t, cfg, dev)
	}}
}

// netdevs returns the interfaces of IPoIB and of Ethernet that have the hardware addresses of the devices
// null0 and null1, of a profile with InfiniBand or iWARP.
func netdevs() (all []ibv.Interface) {
	for dev := range byte(2) {
		gid := verbs.GID{0: 0xfe, 1: 0x80, 8: 2, 15: dev + 1}
		at := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, dev + 1}), 24)}
		all = append(all,
			ibv.Interface{Index: 4 + int(dev), Name: fmt.Sprintf("ib%d", dev), Hardware: append([]byte{0x80, 0, 1, dev}, gid[:]...), Addrs: at},
			ibv.Interface{Index: 6 + int(dev), Name: fmt.Sprintf("eth%d", dev), Hardware: []byte{2, 0, 0, 0, 0, dev + 1}, Addrs: at})
	}
	return all
}

// profile selects a profile of the null device until the test ends.
func profile(t testing.TB, name string) {
	t.Helper()
	must.Do(t, nullControl(t).SetProfile(name))
}

// Rule: a window of more bytes than the device can bind is refused with the limit, and the connection lives on.
func TestAWindowLargerThanTheDevicesIsRefused(t *testing.T) {
	const most = 1 << 31 // libmlx5
	a, b := profileBed("mlx5").connected(t, Config{})
	w := must.Get(a.NewWindow())(t)
	r := must.Get(a.rt.NewRegion(most+1, windowAccess))(t)
	_, _, err := w.Bind(testContext(t), r, 0, most+1, verbs.AccessRemoteRead)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), strconv.Itoa(most)) {
		t.Errorf("binding %d bytes returned %v, want %v with the limit %d", most+1, err, ErrTooLarge, most)
	}
	_, bound, err := w.Bind(testContext(t), r, 1, most, verbs.AccessRemoteRead)
	done(t, bound, err)
	f, err := a.Send(testContext(t), bufferOf(t, a.rt, []byte("alive")).Slice())
	done(t, f, err)
	m := must.Get(b.RecvWait(testContext(t)))(t)
	if string(m.Data) != "alive" {
		t.Errorf("received %q, want %q", m.Data, "alive")
	}
	must.Do(t, m.Release())
}
