//go:build linux && cgo && !portable

package ibv

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// held is how many files that stand for the device librdmacm has open: on the null
// device one for each identifier that is bound.
func held(t *testing.T) (n int) {
	t.Helper()
	fds, err := sys.OpenFDs()
	must(t, err)
	for _, name := range fds {
		if name == "/dev/zero" {
			n++
		}
	}
	return n
}

// Rule: once DEVICE_REMOVAL is told, nothing of librdmacm's keeps the kernel from
// removing the device, although identifiers live on; what was open stays a
// descriptor, which librdmacm closes when it comes to it.
func TestRemovalLetsGoOfLibrdmacmsContext(t *testing.T) {
	r := newCMRig(t)
	before := held(t)
	ids := []verbs.CMID{r.id(), r.id(), r.id()}
	for _, id := range ids[:2] {
		must(t, id.Bind(netip.AddrPortFrom(null0, 0)))
	}
	must(t, ids[2].Bind(netip.MustParseAddrPort("127.0.0.2:0"))) // of another device
	if got := held(t); got != before+3 {
		t.Fatalf("%d files are open for 3 identifiers", got-before)
	}
	all, err := sys.OpenFDs()
	must(t, err)
	must(t, r.null.Remove("null0"))
	for range 2 {
		r.event(verbs.CMDeviceRemoval)
	}
	if got := held(t); got != before+1 {
		t.Errorf("%d files are open after the removal, want that of the other device", got-before)
	}
	now, err := sys.OpenFDs()
	must(t, err)
	for fd, name := range all {
		if _, ok := now[fd]; !ok {
			t.Errorf("descriptor %d (%s) is closed, and may become somebody else's before librdmacm closes it", fd, name)
		}
	}
	for _, id := range ids {
		must(t, id.Close())
	}
}
