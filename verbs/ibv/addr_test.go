//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

func ips(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// withInterfaces returns the configuration of the null device in a process with these interfaces.
func withInterfaces(t testing.TB, all ...Interface) Config {
	return Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM, Interfaces: func() ([]Interface, error) { return all, nil }}
}

func networks(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Rule: the addresses of a device are those of its table that a network interface of this process
// has, IPv4 before IPv6 before link-local with its zone, each once. Table of mlx5: link-local first,
// IPv6 before IPv4, by two protocols, with holes, more than 32 entries, of another name space.
func TestAddressesAreThoseOfTheProcess(t *testing.T) {
	lo := Interface{Index: 1, Name: "lo", Loopback: true, Addrs: networks("127.0.0.1/8", "fd00:5e::1/64", "fe80::5e/64")}
	stranger := Interface{Index: 2, Name: "eth0", Addrs: networks("fd00:10::1/64", "fe80::5e/64")} // has the address of a pod, too
	profiled(t, "mlx5")
	p := provider(t, withInterfaces(t, lo, stranger))
	ctx := opened(t, p, "null0")
	want := ips("127.0.0.1", "fd00:5e::1", "fe80::5e%lo")
	if got := ctx.Device().Addr; !slices.Equal(got, want) {
		t.Errorf("the addresses are %v, want %v", got, want)
	}
	if e, err := verbs.ChooseGID(ctx, 1); err != nil || e.GID.Addr() != want[0] {
		t.Errorf("chose %+v, %v to send from, want %v and not the address of a pod", e, err, want[0])
	}
}

// Rule: Addrs reads a table that has changed, and GID_CHANGE reports it.
func TestAddressesFollowTheTable(t *testing.T) {
	p := provider(t, Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM})
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	t.Cleanup(null.Close)
	ctx := opened(t, p, "null0")
	must.Do(t, null.SetGID("null0", 0, verbs.GIDFromAddr(netip.MustParseAddr("127.1.0.1")), 1))
	if got, err := ctx.(verbs.Addresser).Addrs(); err != nil || !slices.Equal(got, ips("127.1.0.1")) || !slices.Equal(ctx.Device().Addr, got) {
		t.Errorf("after the change the addresses are %v, %v; Device has %v; want 127.1.0.1", got, err, ctx.Device().Addr)
	}
	if ev, ok, err := ctx.Async().Get(); err != nil || !ok || ev.Type != verbs.EventGIDChange {
		t.Errorf("the event is %v, %v, %v; want GID_CHANGE", ev.Type, ok, err)
	}
	must.Do(t, null.SetGID("null0", 0, verbs.GID{}, 0))
	if got, err := ctx.(verbs.Addresser).Addrs(); !errors.Is(err, verbs.ErrNoGID) || len(got) != 0 {
		t.Errorf("of an empty table the addresses are %v, %v; want ErrNoGID", got, err)
	}
}

// Rule: on InfiniBand and iWARP the addresses are those of the interfaces with the port's hardware
// address; without one the error says what is missing.
func TestAddressesOfTheDevicesInterface(t *testing.T) {
	gid := verbs.GID{0: 0xfe, 1: 0x80, 8: 2, 15: 1} // of null0
	hw := append(net.HardwareAddr{0x80, 0, 1, 2}, gid[:]...)
	other := append(net.HardwareAddr{0x80, 0, 1, 3}, make([]byte, 16)...)
	ib0 := Interface{Index: 4, Name: "ib0", Hardware: hw, Addrs: networks("10.9.0.1/24", "fe80::9/64")}
	ib1 := Interface{Index: 5, Name: "ib1", Hardware: other, Addrs: networks("10.9.1.1/24")}
	eth := Interface{Index: 6, Name: "eth0", Hardware: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Addrs: networks("10.8.0.1/24")}
	for _, c := range []struct {
		profile string
		all     []Interface
		want    []netip.Addr
		missing string
	}{
		{"mlx5_ib", []Interface{eth, ib1, ib0}, ips("10.9.0.1", "fe80::9%ib0"), ""},
		{"iwarp", []Interface{ib0, eth}, ips("10.8.0.1"), ""},
		{"mlx5_ib", []Interface{eth}, nil, "IPoIB"},
		{"iwarp", []Interface{ib0}, nil, "hardware address"},
	} {
		profiled(t, c.profile)
		ctx := opened(t, provider(t, withInterfaces(t, c.all...)), "null0")
		got, err := ctx.(verbs.Addresser).Addrs()
		if !slices.Equal(got, c.want) || (err == nil) != (c.missing == "") || err != nil && !strings.Contains(err.Error(), c.missing) {
			t.Errorf("%s has %v, %v; want %v, an error with %q", c.profile, got, err, c.want, c.missing)
		}
	}
}

// Rule: a destination in a network of the device has the device's address there as source, also if the
// system's route leads over another interface; on a link, by the interface that the zone names.
func TestSourceInTheNetworkOfTheDestination(t *testing.T) {
	profiled(t, "mlx5")
	eth := Interface{Index: 1, Name: "eth1", Addrs: networks("192.0.2.7/24", "2001:db8:5e::7/64", "fe80::7/64")}
	p := provider(t, withInterfaces(t, eth, Interface{Index: 2, Name: "eth0", Addrs: networks("192.0.2.6/24")}))
	ctx := opened(t, p, "null0")
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	defer null.Close()
	for i, p := range eth.Addrs {
		must.Do(t, null.SetGID("null0", 60+i, verbs.GIDFromAddr(p.Addr()), eth.Index))
	}
	for dst, want := range map[string]string{
		"192.0.2.1": "192.0.2.7", "2001:db8:5e::1": "2001:db8:5e::7", "fe80::1%eth1": "fe80::7%eth1", "fe80::1%eth0": "", "198.51.100.1": "",
	} {
		got, err := ctx.(verbs.Addresser).Source(netip.MustParseAddr(dst))
		if wanted, _ := netip.ParseAddr(want); err != nil || got != wanted {
			t.Errorf("the source for %s is %v, %v; want %q", dst, got, err, want)
		}
	}
}

// Rule: an address that its interface still checks for duplicates is left out, and reported.
func TestAddressesThatAreChecked(t *testing.T) {
	profiled(t, "mlx5")
	lo := Interface{Index: 1, Name: "lo", Loopback: true, Addrs: networks("127.0.0.1/8"), Checking: networks("fd00:5e::1/64")}
	for _, checking := range []bool{true, false} {
		ctx := opened(t, provider(t, withInterfaces(t, lo)), "null0").(verbs.Addresser)
		if got, err := ctx.Addrs(); err != nil || !slices.Equal(got, ips("127.0.0.1")) || ctx.Checking() != checking {
			t.Errorf("the addresses are %v, %v, Checking is %v; want 127.0.0.1 and %v", got, err, ctx.Checking(), checking)
		}
		lo.Checking = networks("fd00:99::1/64") // not the device's
	}
}

// Rule: the source of a destination is the address that the system sends from, if the device has it;
// an address of the device of the same family for this machine's own; else none.
func TestSourceOfADestination(t *testing.T) {
	profiled(t, "mlx5")
	lo := Interface{Index: 1, Name: "lo", Loopback: true, Addrs: networks("127.0.0.1/8", "fd00:5e::2/64")}
	ctx := opened(t, provider(t, withInterfaces(t, lo)), "null1") // 127.0.0.2, fd00:5e::2
	for dst, want := range map[string]netip.Addr{
		"127.0.0.1": netip.MustParseAddr("127.0.0.2"), // the route says 127.0.0.1
		"127.0.0.2": netip.MustParseAddr("127.0.0.2"),
		"::1":       netip.MustParseAddr("fd00:5e::2"),
		"192.0.2.1": {}, // the route leads to another device, or there is none
	} {
		if got, err := ctx.(verbs.Addresser).Source(netip.MustParseAddr(dst)); err != nil || got != want {
			t.Errorf("the source for %s is %v, %v; want %v", dst, got, err, want)
		}
	}
}
