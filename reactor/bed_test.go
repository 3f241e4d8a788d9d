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

// devicesVariable names two devices under libibverbs that reach each other,
// "rxe0,rxe1" (or twice the same one). Where it is set, everything here runs on
// them.
const devicesVariable = "VERBENA_TEST_DEVICES"

// bed is two devices that reach each other, at port 1.
type bed struct {
	name string
	open func(t testing.TB, dev int) verbs.Context
}

var softBed = bed{"soft", func(t testing.TB, dev int) verbs.Context {
	return must.Get(soft.Default().Open([...]string{"soft0", "soft1"}[dev]))(t)
}}

// deviceBed is that of devicesVariable. What keeps the devices from being opened
// fails the test: they were asked for.
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

// onDevice tells whether tests run on devices under libibverbs that were named.
func onDevice() bool { return os.Getenv(devicesVariable) != "" }

// home is where tests run that need one bed.
func home() bed {
	if names := os.Getenv(devicesVariable); names != "" {
		return deviceBed(names)
	}
	return softBed
}

// onBeds runs a test on every bed there is here.
func onBeds(t *testing.T, test func(t *testing.T, b bed)) {
	all := []bed{home()}
	if !onDevice() {
		all = append(all, moreBeds...)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// onlySoft skips a test, where the bed is a device, that needs the software
// RNIC's own hands or promises.
func onlySoft(t testing.TB, why string) {
	t.Helper()
	if onDevice() {
		t.Skipf("on the software RNIC only: %s", why)
	}
}

// gidOf is the address of the device's port, with its place in the port's table.
func gidOf(t testing.TB, ctx verbs.Context) verbs.GIDEntry {
	t.Helper()
	return must.Get(verbs.ChooseGID(ctx, 1))(t)
}

// mtuOf is the path MTU between two ports on one wire.
func mtuOf(t testing.TB, a, b verbs.Context) verbs.MTU {
	t.Helper()
	return min(must.Get(a.QueryPort(1))(t).ActiveMTU, must.Get(b.QueryPort(1))(t).ActiveMTU)
}

// leftObjects is what closing a device must find gone.
func leftObjects(ctx verbs.Context) error {
	if left := ctx.Objects(); !left.Zero() {
		return fmt.Errorf("left behind: %v", left)
	}
	return nil
}

// TestMain fails the run when goroutines, descriptors, mappings or objects of
// the providers are left behind.
func TestMain(m *testing.M) {
	leak.Main(m, leak.Gauge{Name: "objects of the software RNIC", Read: soft.Live},
		leak.Gauge{Name: "objects of libibverbs", Read: ibv.Live})
}
