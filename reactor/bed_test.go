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

// devicesVariable is the name of an environment variable. Its value names two libibverbs devices
// that reach each other, such as "rxe0,rxe1", or the same device twice. If the variable is set, the
// tests of this package run on these devices. Tests that call onlySoft are then skipped.
const devicesVariable = "VERBENA_TEST_DEVICES"

// bed is a pair of devices with the numbers 0 and 1. Port 1 of device 0 and port 1 of device 1 reach
// each other. Calling open(t, dev) opens the device with the number dev.
type bed struct {
	name string
	open func(t testing.TB, dev int) verbs.Context
}

var softBed = bed{"soft", func(t testing.TB, dev int) verbs.Context {
	return must.Get(soft.Default().Open([...]string{"soft0", "soft1"}[dev]))(t)
}}

// deviceBed returns the bed of the two devices in names. If a device cannot be opened, the test
// fails. It is not skipped, because the user has asked for the device.
func deviceBed(names string) bed {
	devs := strings.Split(names, ",")
	return bed{names, func(t testing.TB, dev int) verbs.Context {
		t.Helper()
		if len(devs) != 2 {
			t.Fatalf("%s is %q, want the names of two devices, separated by a comma", devicesVariable, names)
		}
		return must.Get(ibv.Default().Open(devs[dev]))(t)
	}}
}

// onDevice reports whether devicesVariable selects the devices to test.
func onDevice() bool { return os.Getenv(devicesVariable) != "" }

// fewer returns n, or on a device a tenth of it: there an operation takes an emulated machine a millisecond.
func fewer(n int) int {
	if onDevice() {
		return n / 10
	}
	return n
}

// home returns the bed for a test that runs on one bed only. If the environment variable
// devicesVariable names devices, home returns their bed. Otherwise it returns softBed.
func home() bed {
	if names := os.Getenv(devicesVariable); names != "" {
		return deviceBed(names)
	}
	return softBed
}

// onBeds runs test on home(). Unless devicesVariable selects the devices, onBeds also runs test on
// each bed in moreBeds.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	all := []bed{home()}
	if !onDevice() {
		all = append(all, moreBeds...)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// onlySoft skips the test if the tests run on a device. A test calls onlySoft if it relies on hooks
// or guarantees of the software RNIC.
func onlySoft(t testing.TB, why string) {
	t.Helper()
	if onDevice() {
		t.Skipf("this test runs only on the software RNIC: %s", why)
	}
}

// gidOf returns the entry of the device's GID table that verbs.ChooseGID selects for port 1.
func gidOf(t testing.TB, ctx verbs.Context) verbs.GIDEntry {
	t.Helper()
	return must.Get(verbs.ChooseGID(ctx, 1))(t)
}

// mtuOf returns the path MTU between port 1 of a and port 1 of b.
func mtuOf(t testing.TB, a, b verbs.Context) verbs.MTU {
	t.Helper()
	return min(must.Get(a.QueryPort(1))(t).ActiveMTU, must.Get(b.QueryPort(1))(t).ActiveMTU)
}

// leftObjects returns an error if verbs objects of ctx are still open. Call it immediately before
// ctx is closed.
func leftObjects(ctx verbs.Context) error {
	if left := ctx.Objects(); !left.Zero() {
		return fmt.Errorf("verbs objects of the device are still open: %v", left)
	}
	return nil
}

// TestMain fails the run if the tests leave goroutines, file descriptors, memory mappings or objects
// of a provider behind.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live},
		leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
