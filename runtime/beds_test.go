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
	open func(t testing.TB, cfg Config, dev int) *Runtime
}

// mainBed uses the devices first and second. If the configuration has a Provider of its own, it
// uses that provider's soft0 and soft1.
var mainBed = bed{"main", func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider != nil {
		cfg.Device = [...]string{"soft0", "soft1"}[dev]
	} else {
		cfg.Device = [...]place{first, second}[dev].name
	}
	return mustOpen(t, cfg)
}}

// bedsHere returns all available beds.
func bedsHere() []bed {
	if onDevice { // the other beds are tested without devices
		return []bed{mainBed}
	}
	return beds
}

// onBeds runs a test on every available bed.
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

// devicesEnv names two devices that reach each other, such as "rxe0,rxe1" (or the same one twice);
// a name without a provider is a libibverbs device. If it is set, the tests run on these devices
// instead of the software RNIC.
const devicesEnv = "VERBENA_TEST_DEVICES"

// place is a device to test, as Config.Device names it, and its address.
type place struct {
	name string
	addr netip.Addr
}

// at returns "address:port" of the device; port "0" lets the system choose.
func (p place) at(port string) string {
	return net.JoinHostPort(p.addr.String(), port)
}

// first and second are the devices of the tests. They are set before the tests run.
var (
	first  = place{"soft0", netip.MustParseAddr("127.0.0.1")}
	second = place{"soft1", netip.MustParseAddr("127.0.0.2")}
	// onDevice reports that they are devices of the system.
	onDevice bool
)

// A device of the system may be emulated, as may its machine: timeouts are longer there by this
// factor, and the number of operations smaller.
const deviceSlowness = 10

// fewer returns how many of n operations a test does here.
func fewer(n int) int {
	if onDevice {
		return max(n/deviceSlowness, 1)
	}
	return n
}

// patience returns how long a test waits for an expected event.
func patience() time.Duration {
	if onDevice {
		return 60 * time.Second
	}
	return 20 * time.Second
}

// takePlaces reads VERBENA_TEST_DEVICES. A device that cannot be opened is an error, because the
// user asked for it.
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
	return os.Setenv(DeviceEnv, first.name) // for tests that name no device
}

// notOnDevice skips a test that needs the hooks of our own providers: cut links, scripted faults,
// virtual time.
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

// closing returns a context that limits how long a runtime takes to close.
func closing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}
