//go:build linux && cgo && !portable

package ibv

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// The cable between Soft-RoCE and the software RNIC. The software RNIC's end is in a network name
// space of its own: in the first one Soft-RoCE has UDP port 4791 of every address.
var (
	rxeEnd  = netip.MustParsePrefix("10.78.0.1/24")
	softEnd = netip.MustParsePrefix("10.78.0.2/24")
)

const (
	rxeNIC, softNIC = "mixed0", "mixed1"
	mixedDevice     = "rxemixed"
	mixedSpace      = "mixed"
	mixedMTU        = "4200" // carries 4096 bytes of payload and all headers
)

// flushDeviation was confirmed: with an ICRC computed like that all these cases pass.
const flushDeviation = "rxe covers the headers of a FLUSH twice by its ICRC: the entry of the opcode has no offset of the payload, " +
	"so that payload_addr returns the address of the BTH (rxe_opcode.c, IB_OPCODE_RC_FLUSH; rxe_hdr.h; rxe_icrc.c)"

var flushesOnTheWire = []string{
	"flush_completes_after_the_writes_before_it", "flush_of_a_region_needs_no_range", "flush_of_a_region_without_flush_access_is_refused",
	"flush_to_a_queue_pair_without_flush_access_is_refused", "flush_beyond_the_region_is_refused", "flush_by_a_wrong_key_is_refused",
	"flush_to_persistence_of_other_memory_is_refused", "extended_list_takes_plain_requests_too",
}

// inMixedSpace calls fn in the name space of the software RNIC's end, to which sockets that fn opens
// belong.
func inMixedSpace(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		space, err := os.Open("/run/netns/" + mixedSpace)
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			_ = space.Close() // opened for reading
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// layCable makes the name space, the cable and Soft-RoCE's device, unless an earlier test has. They
// stay: the kernel would wait for the context of the device that librdmacm keeps until the process ends.
func layCable() error {
	if _, err := net.InterfaceByName(rxeNIC); err == nil {
		return nil
	}
	for _, line := range []string{
		"ip netns add " + mixedSpace,
		"ip link add " + rxeNIC + " mtu " + mixedMTU + " type veth peer name " + softNIC + " mtu " + mixedMTU + " netns " + mixedSpace,
		"ip addr add " + rxeEnd.String() + " dev " + rxeNIC,
		"ip link set " + rxeNIC + " up",
		"ip -n " + mixedSpace + " addr add " + softEnd.String() + " dev " + softNIC,
		"ip -n " + mixedSpace + " link set " + softNIC + " up",
		"rdma link add " + mixedDevice + " type rxe netdev " + rxeNIC,
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// mixedPair is the software RNIC (A) and Soft-RoCE (B), joined by a cable.
func mixedPair(t *testing.T) verbstest.Pair {
	t.Helper()
	first, _ := testDevices(t)
	kernel := provider(t, Config{})
	if !isRXE(opened(t, kernel, first)) {
		t.Skipf("%s is not Soft-RoCE", first)
	}
	must.Do(t, layCable())
	rnic := must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{}),
		Devices: []soft.DeviceConfig{{Name: "soft", Addr: softEnd.Addr(), RoCE: true, MTU: verbs.MTU4096}},
	}))(t)
	var a verbs.Context
	must.Do(t, inMixedSpace(func() (err error) {
		a, err = rnic.Open("soft")
		return err
	}))
	t.Cleanup(func() { must.Do(t, a.Close()) })
	b := opened(t, kernel, mixedDevice)
	caps := must.Get(verbstest.CapsOf(a, b))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst, caps.CQResize, caps.LastWQE = true, true, true, true, true, true
	caps.MaxMcastQP = 0 // the software RNIC has no multicast over a socket
	caps.Deviations = maps.Clone(deviations)
	for _, name := range flushesOnTheWire {
		caps.Deviations[name] = flushDeviation
	}
	withoutWhatRXELacks(&caps)
	return verbstest.Pair{
		Name: "soft_roce_from_soft", Caps: caps, Patience: devicePatience, Quiet: deviceQuiet,
		A: verbstest.Endpoint{Provider: rnic, Context: a}, B: verbstest.Endpoint{Provider: kernel, Context: b},
	}
}

// The conformance suite from the software RNIC to Soft-RoCE.
func TestConformanceDeviceFromSoft(t *testing.T) { runOnDevice(t, mixedPair(t)) }

// The conformance suite from Soft-RoCE to the software RNIC.
func TestConformanceDeviceToSoft(t *testing.T) {
	p := mixedPair(t)
	p.Name = "soft_roce_to_soft"
	p.A, p.B = p.B, p.A
	runOnDevice(t, p)
}
