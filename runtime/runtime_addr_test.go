package runtime

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// names are the addresses that a resolver knows.
type names map[string][]netip.Addr

// lookup is Config.lookupIP.
func (n names) lookup(_ context.Context, network, host string) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, ip := range n[host] {
		if network == "ip" || network == "ip4" && ip.Is4() || network == "ip6" && ip.Is6() {
			found = append(found, ip)
		}
	}
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return found, nil
}

// routes is a device of the system. It maps a destination to the device's address from which the system sends
// there.
type routes map[netip.Addr]netip.Addr

func (r routes) Addrs() ([]netip.Addr, error) { return nil, verbs.ErrNoGID }

func (r routes) Checking() bool { return false }

func (r routes) Source(dst netip.Addr) (netip.Addr, error) { return r[dst], nil }

// routedDevice has what destinations needs of a device.
type routedDevice struct {
	verbs.Context
	routes
}

func addrsOf(text ...string) (all []netip.Addr) {
	for _, s := range text {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// Rule: Dial prefers those addresses of a host to which the system sends from an address of the device,
// and of these, and of the others, IPv4. Otherwise it keeps the order of the resolver.
func TestDestinationsInTheirOrder(t *testing.T) {
	own4, own6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	ips := addrsOf("fd00:1::1", "10.1.0.1", "10.1.0.2", "fd00::2", "10.0.0.2", "fd00::3", "10.0.0.3")
	sources := routes{ips[3]: own6, ips[4]: own4, ips[5]: own6, ips[6]: own4}
	rt := &Runtime{dev: routedDevice{routes: sources}, cfg: Config{lookupIP: names{"many": ips}.lookup}}
	var got []netip.Addr
	for _, w := range must.Get(rt.destinations(t.Context(), "many:1"))(t) {
		got = append(got, w.dst.Addr())
		if w.src.Addr() != sources[w.dst.Addr()] {
			t.Errorf("the source for %v is %v, want %v", w.dst, w.src, sources[w.dst.Addr()])
		}
	}
	if want := addrsOf("10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3", "10.1.0.1", "10.1.0.2", "fd00:1::1"); !slices.Equal(got, want) {
		t.Errorf("the addresses are tried in the order %v, want %v", got, want)
	}
}

// Rule: a device of the system reaches a host that has IPv6 addresses only.
func TestANameWithIPv6AddressesOnly(t *testing.T) {
	ip := netip.MustParseAddr("fd00::2")
	rt := &Runtime{dev: routedDevice{}, cfg: Config{lookupIP: names{"six": {ip}}.lookup}}
	if ways, err := rt.destinations(t.Context(), "six:7471"); err != nil || len(ways) != 1 || ways[0].dst != netip.AddrPortFrom(ip, 7471) {
		t.Errorf("the ways to the host are %v, error %v; want its address at the port", ways, err)
	}
	if at, err := rt.resolve(t.Context(), "six:7471"); err != nil || at != netip.AddrPortFrom(ip, 7471) {
		t.Errorf("to listen at the host is to listen at %v, error %v; want its address and the port", at, err)
	}
}
