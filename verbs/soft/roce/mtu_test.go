package roce

import (
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the path MTU is the largest whose packets, with the longest headers, fit, up to a bound.
func TestMTUWithin(t *testing.T) {
	for _, x := range []struct {
		packet int
		most   verbs.MTU
		want   verbs.MTU
	}{
		{0, verbs.MTU32768, verbs.MTU256}, {1280, verbs.MTU32768, verbs.MTU1024}, {1500, verbs.MTU4096, verbs.MTU1024},
		{9000, verbs.MTU4096, verbs.MTU4096}, {9000, verbs.MTU32768, verbs.MTU8192}, {1 << 16, verbs.MTU32768, verbs.MTU32768},
		{32768, verbs.MTU32768, verbs.MTU16384},
	} {
		if got := mtuWithin(x.packet, x.most); got != x.want {
			t.Errorf("packets of %d bytes, at most MTU %d: MTU %d, want %d", x.packet, x.most.Bytes(), got.Bytes(), x.want.Bytes())
		}
	}
}

// Rule: a route has the address that its packets come from, and the MTU of its interface.
func TestRoute(t *testing.T) {
	for _, to := range []string{"127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"} {
		at := netip.MustParseAddrPort(to)
		from, mtu, err := Route(at)
		if err != nil && at.Addr().Is6() && !at.Addr().Is4In6() {
			if _, e := net.Listen("tcp6", "[::1]:0"); e == nil {
				t.Errorf("%s: %v", to, err)
			}
			continue
		}
		must.Do(t, err)
		if want := mtuWithin(interfaceMTU(from), verbs.MTU32768); from != at.Addr().Unmap() || mtu != want {
			t.Errorf("the route to %s is from %v with MTU %d, want that address and %d", to, from, mtu.Bytes(), want.Bytes())
		}
	}
	if _, _, err := Route(netip.MustParseAddrPort("255.255.255.255:9")); err == nil && !sys.Portable {
		t.Error("there is a route to the broadcast address for a socket without that right")
	}
}
