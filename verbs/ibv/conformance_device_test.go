//go:build linux && cgo && !portable

package ibv

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// devicesEnv names two devices that reach each other, "A,B"; both may be the
// same one.
const devicesEnv = "VERBENA_TEST_DEVICES"

// testDevices are the devices that the tester gives; without any the test is
// skipped.
func testDevices(t *testing.T) (a, b string) {
	t.Helper()
	v := os.Getenv(devicesEnv)
	if v == "" {
		t.Skipf("%s names no RDMA devices (two that reach each other: A,B; make test-rxe runs this on the kernel's software device)", devicesEnv)
	}
	a, b, ok := strings.Cut(v, ",")
	if !ok {
		b = a
	}
	return a, b
}

// gidOf is the entry of port 1 to talk from: the first of RoCE version 2 with an
// IPv4 address, or the first of RoCE version 2 that is not link-local, or the
// first.
func gidOf(t *testing.T, ctx verbs.Context) uint8 {
	t.Helper()
	p, err := ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	routed := -1
	for i := range min(p.GIDTblLen, maxScan) {
		e, err := ctx.QueryGIDEntry(1, i)
		if err != nil || e.Type != verbs.GIDRoCEv2 || e.GID == (verbs.GID{}) {
			continue // an empty entry, or none to be chosen
		}
		ip := e.GID.Addr()
		if ip.Unmap().Is4() {
			return uint8(i)
		}
		if routed < 0 && !ip.IsLinkLocalUnicast() {
			routed = i
		}
	}
	return uint8(max(routed, 0))
}

// The waits of a run on a device: the machine may be emulated, and its kernel
// has timers of its own (an unanswered request of the connection manager is
// sent again after seconds).
const (
	devicePatience = 5 * time.Second
	deviceQuiet    = 20 * time.Millisecond
)

// devicePair is two devices of the system, opened with the system's libraries.
func devicePair(t *testing.T, name string, cfg Config, nameA, nameB string) verbstest.Pair {
	t.Helper()
	p := provider(t, cfg)
	a, b := opened(t, p, nameA), opened(t, p, nameB)
	caps, err := verbstest.CapsOf(a, b)
	if err != nil {
		t.Fatal(err)
	}
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst = true, true, true, true
	caps.CMUDP, caps.CMMcast, caps.CQResize, caps.LastWQE = true, true, true, true
	caps.MaxInline = inlineOf(t, a)
	caps.Deviations = deviations
	return verbstest.Pair{
		Name: name, Caps: caps, Patience: devicePatience, Quiet: deviceQuiet,
		A: verbstest.Endpoint{Provider: p, Context: a, GIDIndex: gidOf(t, a)},
		B: verbstest.Endpoint{Provider: p, Context: b, GIDIndex: gidOf(t, b)},
	}
}

// The conformance suite on the devices that the tester names: between the two,
// and with both ends on the first.
func TestConformanceDevice(t *testing.T) {
	a, b := testDevices(t)
	if a != b {
		t.Run("two", func(t *testing.T) {
			documented(t, verbstest.Run(t, devicePair(t, "soft_roce", Config{}, a, b)))
		})
	}
	t.Run("one", func(t *testing.T) {
		documented(t, verbstest.Run(t, devicePair(t, "soft_roce_one_device", Config{}, a, a)))
	})
}
