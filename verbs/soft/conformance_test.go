package soft_test

import (
	"maps"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// conformanceSeed is the seed of the virtual fabrics: the same packets are lost each time.
const conformanceSeed = 20

// scripts adapts a fabric to the suite's fault script.
type scripts struct{ f *fabric.Fabric }

func (s scripts) Set(from, to verbs.GID, x verbstest.Fault) {
	l := fabric.Link{Loss: x.Loss, Dup: x.Dup, Reorder: x.Reorder, Delay: x.Delay, Jitter: x.Jitter, Down: x.Down}
	for _, n := range x.Drop {
		l.Rules = append(l.Rules, fabric.Rule{From: n, To: n, Drop: true})
	}
	for _, n := range x.Repeat {
		l.Rules = append(l.Rules, fabric.Rule{From: n, To: n, Dup: true})
	}
	for n, d := range x.Late {
		l.Rules = append(l.Rules, fabric.Rule{From: n, To: n, Delay: d})
	}
	s.f.SetLink(from, to, l)
}

func (s scripts) Heal() { s.f.SetAll(fabric.Link{}); s.f.Heal() }

// cables adapts a provider to the suite's control of ports and devices.
type cables struct {
	*soft.Provider
	spare string
}

func (c cables) Spare() string { return c.spare }

// pair opens two devices of a provider on f; nil selects the process-wide fabric.
func pair(t *testing.T, name string, f *fabric.Fabric, mtu verbs.MTU) verbstest.Pair {
	t.Helper()
	cfg := soft.Config{Fabric: f}
	if f != nil {
		for i, dev := range []string{"left", "right", "spare"} {
			cfg.Devices = append(cfg.Devices, soft.DeviceConfig{Name: dev, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), MTU: mtu})
		}
	}
	p := must.Get(soft.New(cfg))(t)
	ds := must.Get(p.Devices())(t)
	open := func(name string) verbs.Context {
		ctx := must.Get(p.Open(name))(t)
		t.Cleanup(func() {
			if err := ctx.Close(); err != nil {
				t.Errorf("closing the context of %s: %v", name, err)
			}
		})
		return ctx
	}
	a, b := open(ds[0].Name), open(ds[1].Name)
	caps := must.Get(verbstest.CapsOf(a, b))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst, caps.RandomKeys = true, true, true, true, true
	caps.CMUDP, caps.CMMcast = true, true
	caps.CQResize, caps.LastWQE, caps.CheckedHandles = true, true, true
	caps.Devices = cables{p, ds[2].Name}
	if !sys.Portable {
		caps.Persistent = func(size int) (*mem.Arena, error) {
			return mem.MapFile(filepath.Join(t.TempDir(), "persistent"), size)
		}
	}
	if f != nil {
		caps.Faults = scripts{f}
		if f.Virtual() {
			caps.Clock = f
		}
	}
	return verbstest.Pair{
		Name: name, Caps: caps,
		A: verbstest.Endpoint{Provider: p, Context: a}, B: verbstest.Endpoint{Provider: p, Context: b},
	}
}

// portable are the cases about features that the portable build lacks: descriptors, file
// mappings, inodes.
var portable = map[string]bool{
	"channel_descriptor_is_readable_until_its_events_are_taken": true,
	"flush_to_persistence_completes":                            true,
	"xrc_domain_is_shared_by_its_file":                          true,
}

// lacking are the cases about features that this device reports as unsupported: see mem_odp.go
// and device_domain.go.
var lacking = map[string]bool{
	"implicit_region_serves_any_address":                   true,
	"implicit_region_is_not_for_peers":                     true,
	"dmabuf_region_takes_send_write_and_read":              true,
	"dmabuf_region_begins_at_its_offset":                   true,
	"dmabuf_region_ends_where_it_ends":                     true,
	"dmabuf_region_outlives_its_descriptor":                true,
	"dmabuf_region_is_counted_and_keeps_its_domain":        true,
	"dmabuf_with_wrong_arguments_is_refused":               true,
	"td_is_counted_and_lives_as_long_as_its_parent_domain": true,
	"parent_domain_keeps_its_domain":                       true,
	"parent_domain_shares_the_keys_of_its_domain":          true,
	"parent_domain_protects_as_its_domain_does":            true,
	"parent_domain_binds_windows":                          true,
	"parent_domain_takes_datagrams":                        true,
	"parent_domain_may_be_without_a_thread_domain":         true,
	"td_of_another_context_is_refused":                     true,
	"ece_is_set_before_init_and_read_again":                true,
	"ece_of_another_vendor_is_refused":                     true,
	"ud_lid_alone_reaches_and_answers_within_a_subnet":     true,
}

// complete fails if the software RNIC skipped a case for a reason that is not listed.
func complete(t *testing.T, r *verbstest.Report, allowed map[string]bool) {
	t.Helper()
	if !sys.Portable { // the portable build lacks descriptors and file mappings
		verbstest.Documented(t, r, "../../docs/conformance.md")
	}
	for _, x := range r.Results {
		absent := sys.Portable && portable[x.Name]
		if x.Verdict == verbstest.NotApplicable && !allowed[x.Name] && !absent && !lacking[x.Name] {
			t.Errorf("%s is not applicable: %s", x.Name, x.Reason)
		}
	}
}

// Virtual time with a fault script, at two path MTUs.
func TestConformanceVirtual(t *testing.T) {
	for _, run := range []struct {
		name string
		mtu  verbs.MTU
	}{{"soft_virtual_1024", verbs.MTU1024}, {"soft_virtual_4096", verbs.MTU4096}} {
		t.Run(run.name, func(t *testing.T) {
			f := fabric.New(fabric.Config{Virtual: true, Seed: conformanceSeed})
			p := pair(t, run.name, f, run.mtu)
			complete(t, verbstest.Run(t, p), overMTU[run.mtu])
		})
	}
}

// Real time on the process-wide fabric, where a message is one packet.
func TestConformanceRealTime(t *testing.T) {
	complete(t, verbstest.Run(t, pair(t, "soft_default", nil, 0)), unscripted)
}

// Real time on a separate fabric, with faults.
func TestConformanceRealTimeFaults(t *testing.T) {
	f := fabric.New(fabric.Config{Seed: conformanceSeed})
	allowed := maps.Clone(unscripted)
	maps.Copy(allowed, overMTU[verbs.MTU1024])
	complete(t, verbstest.Run(t, pair(t, "soft_faults", f, verbs.MTU1024)), allowed)
}

// overMTU are the cases about packets that a link does not carry.
var overMTU = map[verbs.MTU]map[string]bool{
	verbs.MTU1024: {"rc_messages_around_multiples_of_mtu_2048": true, "rc_messages_around_multiples_of_mtu_4096": true},
}

// unscripted are the cases that need a clock or a fault script.
var unscripted = func() map[string]bool {
	m := map[string]bool{}
	for _, s := range verbstest.Cases() {
		m[s.Name] = s.NeedsScript()
	}
	return m
}()
