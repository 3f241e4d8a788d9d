//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// deviceFile stands for a device in librdmacm's contexts on the null device: one for each bound
// identifier.
const deviceFile = "/dev/zero"

// held returns the descriptors of deviceFile. Other descriptors of the process come and go.
func held(t *testing.T) (fds []int) {
	t.Helper()
	all := must.Get(sys.OpenFDs())(t)
	for fd, name := range all {
		if name == deviceFile {
			fds = append(fds, fd)
		}
	}
	return fds
}

// Rule: after DEVICE_REMOVAL is delivered, librdmacm no longer keeps the kernel from removing the
// device, although identifiers live on; its descriptors stay valid until librdmacm closes them.
func TestRemovalLetsGoOfLibrdmacmsContext(t *testing.T) {
	r := newCMRig(t)
	before := len(held(t))
	ids := []verbs.CMID{r.id(), r.id(), r.id()}
	for _, id := range ids[:2] {
		must.Do(t, id.Bind(netip.AddrPortFrom(null0, 0)))
	}
	must.Do(t, ids[2].Bind(netip.MustParseAddrPort("127.0.0.2:0"))) // of another device
	of := held(t)
	if len(of) != before+3 {
		t.Fatalf("%d files are open for 3 identifiers", len(of)-before)
	}
	must.Do(t, r.null.Remove("null0"))
	for range 2 {
		r.event(verbs.CMDeviceRemoval)
	}
	if got := len(held(t)); got != before+1 {
		t.Errorf("%d files are open after the removal, want that of the other device", got-before)
	}
	now := must.Get(sys.OpenFDs())(t)
	for _, fd := range of {
		if name := now[fd]; name != deviceFile && name != os.DevNull {
			t.Errorf("descriptor %d is %q: it was not kept taken until librdmacm closes it", fd, name)
		}
	}
	for _, id := range ids {
		must.Do(t, id.Close())
	}
}

// Rule: a call on an identifier that the kernel has closed because the device is removed returns
// ErrDeviceRemoved, whichever call it is and although the event is not taken yet: Close on such a
// connection once failed with an errno.
func TestCallsOnAnIdentifierTheKernelClosedSayRemoved(t *testing.T) {
	r := newCMRig(t)
	id := r.routed(r.listener().LocalAddr().Port())
	init := &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	for call, do := range map[string]func() error{
		"rdma_connect":       func() error { return id.Connect(&verbs.ConnParam{}) },
		"rdma_resolve_route": func() error { return id.ResolveRoute(time.Second) },
		"rdma_set_option":    func() error { return id.SetAckTimeout(14) },
		"rdma_init_qp_attr":  func() error { return id.CreateQP(r.pd, init) },
		"rdma_migrate_id":    func() error { return id.Migrate(r.ch) },
	} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: call, Err: syscall.ENXIO})
		if err := do(); !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("%s: %v, want that the device is removed", call, err)
		}
	}
}
