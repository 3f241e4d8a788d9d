package reactor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// devicesVariable is the environment variable that names two libibverbs devices that reach each
// other, such as "rxe0,rxe1" (or the same one twice). If it is set, all tests of this package run
// on these devices.
const devicesVariable = "VERBENA_TEST_DEVICES"

// bed is a pair of devices, 0 and 1, whose ports 1 reach each other. The function open opens one.
type bed struct {
	name string
	open func(t testing.TB, dev int) verbs.Context
}

var softBed = bed{"soft", func(t testing.TB, dev int) verbs.Context {
	return must.Get(soft.Default().Open([...]string{"soft0", "soft1"}[dev]))(t)
}}

// deviceBed returns the bed of the devices in names. A device that does not open fails the test,
// because the user asked for it.
func deviceBed(names string) bed {
	devs := strings.Split(names, ",")
	return bed{names, func(t testing.TB, dev int) verbs.Context {
		t.Helper()
		if len(devs) != 2 {
			t.Fatalf("%s is %q, want two devices with a comma between", devicesVariable, names)
		}
		return must.Get(ibv.Default().Open(devs[dev]))(t)
	}}
}

// onDevice reports whether devicesVariable selects the devices to test.
func onDevice() bool { return os.Getenv(devicesVariable) != "" }

// home returns the bed of tests that run on one bed only.
func home() bed {
	if names := os.Getenv(devicesVariable); names != "" {
		return deviceBed(names)
	}
	return softBed
}

// onBeds runs a test on every available bed.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	all := []bed{home()}
	if !onDevice() {
		all = append(all, moreBeds...)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// onlySoft skips a test that relies on hooks or guarantees of the software RNIC, if tests run on a
// device.
func onlySoft(t testing.TB, why string) {
	t.Helper()
	if onDevice() {
		t.Skipf("on the software RNIC only: %s", why)
	}
}

// gidOf returns the address of the device's port and its index in the port's GID table.
func gidOf(t testing.TB, ctx verbs.Context) verbs.GIDEntry {
	t.Helper()
	return must.Get(verbs.ChooseGID(ctx, 1))(t)
}

// mtuOf returns the path MTU between two ports.
func mtuOf(t testing.TB, a, b verbs.Context) verbs.MTU {
	t.Helper()
	return min(must.Get(a.QueryPort(1))(t).ActiveMTU, must.Get(b.QueryPort(1))(t).ActiveMTU)
}

// leftObjects returns an error if ctx still has verbs objects. All must be closed before ctx.
func leftObjects(ctx verbs.Context) error {
	if left := ctx.Objects(); !left.Zero() {
		return fmt.Errorf("left behind: %v", left)
	}
	return nil
}

// TestMain fails the run if goroutines, descriptors, mappings or provider objects are left behind.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live},
		leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
