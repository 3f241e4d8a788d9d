//go:build linux && cgo && !portable

package ibv

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// devicesEnv names two devices that reach each other, "A,B"; both may be the
// same one.
const devicesEnv = "VERBENA_TEST_DEVICES"

// testDevices returns the devices given by the tester; without any it skips the test.
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

// The waits of a run on a device. The machine may be emulated, so that a millisecond is few
// instructions, and its connection manager repeats an unanswered request only after seconds.
const (
	devicePatience = 30 * time.Second
	deviceQuiet    = 20 * time.Millisecond
)

// devicePair is two devices of the system, opened with the system's libraries,
// each in a context of its own.
func devicePair(t *testing.T, nameA, nameB string, cfg Config) verbstest.Pair {
	t.Helper()
	p := provider(t, cfg)
	a, b := opened(t, p, nameA), opened(t, p, nameB)
	caps := must.Get(verbstest.CapsOf(a, b))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst = true, true, true, true
	caps.CMUDP, caps.CMMcast, caps.CQResize, caps.LastWQE = true, true, true, true
	caps.MaxInline = inlineOf(t, a)
	caps.Deviations, caps.CMOnly = deviationsOf(t, a, b), iwarp(a)
	pair := verbstest.Pair{
		Name: nameA + "_" + nameB, Device: true, Caps: caps, Patience: devicePatience, Quiet: deviceQuiet,
		A: verbstest.Endpoint{Provider: p, Context: a}, B: verbstest.Endpoint{Provider: p, Context: b},
	}
	if isRXE(a) && isRXE(b) {
		pair.Name = "soft_roce"
		withoutWhatRXELacks(&pair.Caps)
		pair.Caps.Faults, pair.Caps.Coarse = newNetem(t, &pair), true
	}
	joinGroups(t, a)
	joinGroups(t, b)
	return pair
}

func isRXE(ctx verbs.Context) bool {
	return ctx.(*deviceContext).rxe
}

// joinGroups makes the host join the suite's multicast groups on the interfaces of a device: the
// kernel drops other datagrams before Soft-RoCE sees them, and a switch may not forward them.
func joinGroups(t *testing.T, ctx verbs.Context) {
	t.Helper()
	for _, at := range interfacesOf(t, ctx) {
		for _, g := range verbstest.Groups() {
			s, err := net.ListenMulticastUDP("udp4", &at, &net.UDPAddr{IP: g.AsSlice()})
			if err != nil {
				t.Fatalf("joining %v on %s: %v", g, at.Name, err)
			}
			t.Cleanup(func() { _ = s.Close() })
		}
	}
}

// interfacesOf returns the network interfaces that have an address of the device.
func interfacesOf(t *testing.T, ctx verbs.Context) (found []net.Interface) {
	t.Helper()
	all := must.Get(net.Interfaces())(t)
	for _, i := range all {
		addrs := must.Get(i.Addrs())(t)
		for _, a := range addrs {
			n, err := netip.ParsePrefix(a.String())
			if err == nil && slices.Contains(ctx.Device().Addr, n.Addr()) {
				found = append(found, i)
				break
			}
		}
	}
	return found
}

// runOnDevice runs the suite and compares it with the document, which has columns for Soft-RoCE
// but not for other devices.
func runOnDevice(t *testing.T, pair verbstest.Pair) {
	t.Helper()
	r := verbstest.Run(t, pair)
	if strings.HasPrefix(pair.Name, "soft_roce") {
		documented(t, r)
	}
}

// The conformance suite between the two devices named by the tester.
func TestConformanceDevice(t *testing.T) {
	a, b := testDevices(t)
	if a == b {
		t.Skipf("%s names one device; TestConformanceOneDevice runs the suite on it", devicesEnv)
	}
	runOnDevice(t, devicePair(t, a, b, Config{}))
}

// The same with both ends on one device, which may take another path through it (Soft-RoCE sends
// no packet then).
func TestConformanceOneDevice(t *testing.T) {
	a, _ := testDevices(t)
	pair := devicePair(t, a, a, Config{})
	pair.Name += "_one_device"
	if isRXE(pair.A.Context) {
		pair.Caps.Deviations["ud_payload_stands_behind_40_bytes"] = "packets within a device skip the network, which would make the checksum of their IP header " +
			"(rxe_net.c, prepare_ipv4_hdr and rxe_loopback); without it a header is not told from other bytes"
	}
	runOnDevice(t, pair)
}

// The same on completion queues that are polled by ibv_start_poll.
func TestConformanceDeviceExtendedCQ(t *testing.T) {
	a, b := testDevices(t)
	pair := devicePair(t, a, b, Config{ExtendedCQ: true})
	pair.Name += "_extended_cq"
	runOnDevice(t, pair)
}
