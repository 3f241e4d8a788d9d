//go:build linux && cgo && !portable

package ibv

import (
	"maps"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mixed"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// flushDeviation was confirmed: with an ICRC computed like that all these cases pass.
const flushDeviation = "rxe covers the headers of a FLUSH twice by its ICRC: the entry of the opcode has no offset of the payload, " +
	"so that payload_addr returns the address of the BTH (rxe_opcode.c, IB_OPCODE_RC_FLUSH; rxe_hdr.h; rxe_icrc.c)"

var flushesOnTheWire = []string{
	"flush_completes_after_the_writes_before_it", "flush_of_a_region_needs_no_range", "flush_of_a_region_without_flush_access_is_refused",
	"flush_to_a_queue_pair_without_flush_access_is_refused", "flush_beyond_the_region_is_refused", "flush_by_a_wrong_key_is_refused",
	"flush_to_persistence_of_other_memory_is_refused", "extended_list_takes_plain_requests_too",
}

// slowResponse is the code of 1.07 s. An emulated machine may answer a request after the usual 134 ms, and takes
// one that was repeated meanwhile for another if it has rejected the first.
const slowResponse = 18

// mixedPair is the software RNIC (A) and Soft-RoCE (B), joined by a cable.
func mixedPair(t *testing.T) verbstest.Pair {
	t.Helper()
	first, _ := testDevices(t)
	kernel := provider(t, Config{})
	if !isRXE(opened(t, kernel, first)) {
		t.Skipf("%s is not Soft-RoCE", first)
	}
	must.Do(t, mixed.Lay())
	rnic := must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{}),
		Devices: []soft.DeviceConfig{{Name: "soft", Addr: mixed.SoftAddr, Link: soft.LinkRoCE, MTU: verbs.MTU4096}},
		CM:      soft.CMConfig{ResponseTimeout: slowResponse},
	}))(t)
	var a verbs.Context
	must.Do(t, mixed.Within(func() (err error) {
		a, err = rnic.Open("soft")
		return err
	}))
	t.Cleanup(func() { must.Do(t, a.Close()) })
	b := opened(t, kernel, mixed.Device)
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
