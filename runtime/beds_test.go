package runtime

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// bed is a provider with two devices that reach each other.
type bed struct {
	name string
	// open opens a runtime on device 0 or 1. The runtime is closed at the end of the test.
	open func(t testing.TB, cfg Config, dev int) *Runtime
}

// mainBed uses the devices in the variables first and second. If the Config has a Provider, mainBed
// uses the devices soft0 and soft1 of that provider.
var mainBed = bed{"main", func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider != nil {
		cfg.Device = [...]string{"soft0", "soft1"}[dev]
	} else {
		cfg.Device = [...]place{first, second}[dev].name
	}
	return mustOpen(t, cfg)
}}

// bedsHere returns the beds to test: only mainBed on devices of the system, otherwise all beds.
func bedsHere() []bed {
	if onDevice { // another run, without these devices, tests the other beds
		return []bed{mainBed}
	}
	return beds
}

// onBeds runs a test on each bed that bedsHere returns.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	for _, b := range bedsHere() {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// connected returns a connected pair on mainBed.
func connected(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	return mainBed.connected(t, cfg)
}

// connected opens two runtimes on the bed's two devices and connects them.
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

// devicesEnv is the environment variable with the names of two devices that reach each other, such
// as "rxe0,rxe1". The two names may be equal. A name without a provider is a libibverbs device. If
// the variable is set, the tests run on these devices instead of the software RNIC.
const devicesEnv = "VERBENA_TEST_DEVICES"

// place is a device to test: its name for Config.Device, and its address.
type place struct {
	name string
	addr netip.Addr
}

// at(port) returns the device's address and the port as "address:port". With port "0" the system
// chooses a port.
func (p place) at(port string) string {
	return net.JoinHostPort(p.addr.String(), port)
}

// The variables first and second are the devices of the tests. takePlaces may replace them before
// the tests run.
var (
	first  = place{"soft0", netip.MustParseAddr("127.0.0.1")}
	second = place{"soft1", netip.MustParseAddr("127.0.0.2")}
	// onDevice is true if first and second are devices of the system (VERBENA_TEST_DEVICES).
	onDevice bool
)

// On devices of the system, which may be emulated, tests divide the number of operations by
// deviceSlowness, and multiply limits of processor time by deviceSlowness.
const deviceSlowness = 10

// fewer(n) returns n/deviceSlowness on devices of the system, and n elsewhere.
func fewer(n int) int {
	if onDevice {
		return max(n/deviceSlowness, 1)
	}
	return n
}

// patience() returns how long a test waits for an expected event.
func patience() time.Duration {
	if onDevice {
		return 60 * time.Second
	}
	return 20 * time.Second
}

// takePlaces sets first, second and onDevice from VERBENA_TEST_DEVICES. It returns an error if a
// device cannot be opened: the tests are not skipped, because the user asked for this device.
func takePlaces() error {
	names, set := os.LookupEnv(devicesEnv)
	if !set {
		return nil
	}
	a, b, two := strings.Cut(names, ",")
	if !two || a == "" || b == "" {
		return fmt.Errorf("%s is %q, want two devices: A,B", devicesEnv, names)
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
	return os.Setenv(DeviceEnv, first.name) // for tests whose Config names no device
}

// notOnDevice skips the test on devices of the system. Tests call it if they need cut links,
// scripted faults or virtual time, which only our own providers have.
func notOnDevice(t testing.TB, why string) {
	t.Helper()
	if onDevice {
		t.Skipf("not on %s: %s", first.name, why)
	}
}

// TestMain fails the run if goroutines, descriptors, mappings or provider objects are left behind.
func TestMain(m *testing.M) {
	if err := takePlaces(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live}, leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}

// closing() returns a context with the time limit for closing a runtime.
func closing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}
