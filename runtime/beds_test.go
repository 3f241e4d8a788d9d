package runtime

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// bed is a test bed: a provider with two devices that can connect to each other.
type bed struct {
	name string
	// open opens a runtime on device 0 or 1. The runtime is closed at the end of the test.
	open func(t testing.TB, cfg Config, dev int) *Runtime
	null bool // the devices are the null device's
}

// mainBed uses the devices in the variables first and second. But if the Config has a Provider,
// mainBed uses that provider's devices soft0 and soft1.
var mainBed = bed{name: "main", open: func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider != nil {
		cfg.Device = [...]string{"soft0", "soft1"}[dev]
	} else {
		cfg.Device = [...]place{first, second}[dev].name
	}
	return mustOpen(t, cfg)
}}

// bedsHere returns the beds to test. If VERBENA_TEST_DEVICES is set, bedsHere returns only mainBed,
// because the other beds do not use those devices. Otherwise it returns all beds.
func bedsHere() []bed {
	if onDevice {
		return []bed{mainBed}
	}
	return beds
}

// onBeds runs a test, as a subtest, on each bed that bedsHere returns, and on the null device as each
// driver's device. A test of more than 0.2 s uses onPlainBeds.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	onPlainBeds(t, test)
	if onDevice || raceEnabled { // the profiles add no goroutines, so they add no races
		return
	}
	need := bedNeeds[t.Name()]
	for _, b := range profileBeds {
		t.Run(b.name, func(t *testing.T) {
			if need != nil {
				rt := b.open(t, Config{}, 0)
				attr := rt.DeviceAttr()
				must.Do(t, rt.Close(testContext(t)))
				if !need(&attr) {
					t.Skip("the device lacks what the test needs (bedNeeds)")
				}
			}
			test(t, b)
		})
	}
}

// bedNeeds has what tests of onBeds need of a device and some devices lack.
var bedNeeds = func() map[string]func(*verbs.DeviceAttr) bool {
	windows := func(a *verbs.DeviceAttr) bool { return a.MaxMW > 0 }
	shared := func(a *verbs.DeviceAttr) bool { return a.MaxSRQ > 0 }
	datagrams := func(a *verbs.DeviceAttr) bool { return slices.Contains(a.QPTypes, verbs.QPTUD) }
	return map[string]func(*verbs.DeviceAttr) bool{
		"TestWindowOpensItsRange":                windows,
		"TestInvalidatedWindowIsShut":            windows,
		"TestPeerShutsWindow":                    windows,
		"TestWindowsEndWithTheirConnection":      windows,
		"TestRevokeShutsAWindow":                 windows,
		"TestABindingBehindAResendIsMadeOnce":    windows,
		"TestSharedReceivesServeAllConnections":  shared,
		"TestSharedReceivesOutliveAConnection":   shared,
		"TestSharedReceivesClose":                shared,
		"TestPlainConnectionsShareReceives":      shared,
		"TestPrepareAcceptOptions":               shared,
		"TestRawReceivesAllocateNothing":         shared,
		"TestPacketAndReply":                     datagrams,
		"TestListenPacketThatFailsLeavesNothing": datagrams,
		"TestReplyToAnAbsentSourceKeepsNoTurn":   datagrams,
	}
}()

// onPlainBeds runs a test, as a subtest, on each bed that bedsHere returns.
func onPlainBeds(t *testing.T, test func(t *testing.T, b bed)) {
	for _, b := range bedsHere() {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// connected connects two new runtimes on mainBed. See bed.connected.
func connected(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	return mainBed.connected(t, cfg)
}

// connected opens two runtimes on the bed's two devices and connects them. It returns the dialing
// end a and the accepting end b.
func (d bed) connected(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	ctx := testContext(t)
	a = must.Get(client.Dial(ctx, ln.Addr().String()))(t)
	b = must.Get(seat.Await(ctx))(t)
	return a, b
}

// devicesEnv is the name of an environment variable. If the variable is set, the tests run on the
// two devices that it lists, such as "rxe0,rxe1", instead of the software RNIC. The two devices must
// be able to connect to each other, and may be the same device. A name may have a provider prefix, as
// in "ibv:rxe0". Without a prefix the provider is ibv, which uses libibverbs.
const devicesEnv = "VERBENA_TEST_DEVICES"

// place is a device to test: its name for Config.Device, and its address.
type place struct {
	name string
	addr netip.Addr
}

// at returns the device's address and the given port as "address:port". If the port is "0",
// Runtime.Listen chooses a port.
func (p place) at(port string) string {
	return net.JoinHostPort(p.addr.String(), port)
}

// The variables first and second are the two devices on which the tests run. If VERBENA_TEST_DEVICES
// is set, takePlaces replaces them before the tests run.
var (
	first  = place{"soft0", netip.MustParseAddr("127.0.0.1")}
	second = place{"soft1", netip.MustParseAddr("127.0.0.2")}
	// onDevice is true if VERBENA_TEST_DEVICES is set. The variables first and second are then kernel
	// devices: RDMA adapters or Soft-RoCE.
	onDevice bool
)

// deviceSlowness is an estimate of how much slower a kernel device is than the software RNIC. (A
// kernel device may belong to an emulated machine.) On kernel devices, tests divide the number of
// operations by deviceSlowness.
const deviceSlowness = 10

// fewer returns n/deviceSlowness, but at least 1, on kernel devices. Otherwise it returns n.
func fewer(n int) int {
	if onDevice {
		return max(n/deviceSlowness, 1)
	}
	return n
}

// patience returns how long a test waits for an expected event before the test fails.
func patience() time.Duration {
	if onDevice {
		return 60 * time.Second
	}
	return 20 * time.Second
}

// takePlaces sets first, second and onDevice from VERBENA_TEST_DEVICES. If a device cannot be opened,
// takePlaces returns an error, so that the test run fails. The tests are not skipped, because the
// user has asked for this device.
func takePlaces() error {
	names, set := os.LookupEnv(devicesEnv)
	if !set || netns.Inside() { // the addresses of the devices are not in a namespace of a test
		return nil
	}
	a, b, two := strings.Cut(names, ",")
	if !two || a == "" || b == "" {
		return fmt.Errorf("%s is %q, want the names of two devices: A,B", devicesEnv, names)
	}
	for i, p := range []*place{&first, &second} {
		name := [...]string{a, b}[i]
		if !strings.Contains(name, ":") {
			name = "ibv:" + name
		}
		rt, err := Open(Config{Device: name})
		if err != nil {
			return fmt.Errorf("%s is %q: %w", devicesEnv, names, err)
		}
		*p = place{name, rt.addr}
		ctx, cancel := closing()
		err = rt.Close(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("closing %s: %w", name, err)
		}
		if !p.addr.IsValid() {
			return fmt.Errorf("%s is %q: %s has no IP address", devicesEnv, names, name)
		}
	}
	onDevice = true
	return os.Setenv(DeviceEnv, first.name) // Open uses this device if a test's Config names none
}

// notOnDevice skips the test on kernel devices, and logs the given reason. For example, a test calls
// notOnDevice if it needs cut links, scripted faults or virtual time, which kernel devices do not have.
func notOnDevice(t testing.TB, why string) {
	t.Helper()
	if onDevice {
		t.Skipf("this test does not run on %s: %s", first.name, why)
	}
}

// TestMain runs the tests. The run also fails if goroutines, file descriptors, memory mappings or
// provider objects still exist at its end.
func TestMain(m *testing.M) {
	if err := takePlaces(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}

// closing returns a context with a time limit for Runtime.Close.
func closing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}
