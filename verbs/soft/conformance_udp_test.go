package soft_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// roceEnd is a provider of one device with a socket, on a fabric of its own: one of two machines.
type roceEnd struct {
	provider *soft.Provider
	fab      *fabric.Fabric
	ctx      verbs.Context
	gid      verbs.GID
}

// patientCM gives up a peer after 2.1 s, and not after 1.1 s by default: both ends are in one process here, and a machine
// that gives it no processor for a second is not a lost peer.
var patientCM = soft.CMConfig{MaxRetries: 15}

// openRoCE opens a device at an address of the loopback network that no other process of this machine has.
func openRoCE(t *testing.T, name string) roceEnd {
	t.Helper()
	for {
		addr := netip.AddrFrom4([4]byte{127, byte(rand.N(254) + 1), byte(rand.N(256)), byte(rand.N(254) + 1)})
		if e, err := tryRoCE(t, name, addr); !errors.Is(err, syscall.EADDRINUSE) {
			must.Do(t, err)
			return e
		}
	}
}

func openRoCEAt(t *testing.T, name, addr string) roceEnd {
	t.Helper()
	return must.Get(tryRoCE(t, name, netip.MustParseAddr(addr)))(t)
}

func tryRoCE(t *testing.T, name string, addr netip.Addr) (roceEnd, error) {
	t.Helper()
	f := fabric.New(fabric.Config{Seed: conformanceSeed})
	p := must.Get(soft.New(soft.Config{Fabric: f, CM: patientCM, Devices: []soft.DeviceConfig{{Name: name, Addr: addr, Link: soft.LinkRoCE}}}))(t)
	ctx, err := p.Open(name)
	if err != nil {
		return roceEnd{}, err
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Errorf("closing the context of %s: %v", name, err)
		}
	})
	return roceEnd{p, f, ctx, verbs.GIDFromAddr(addr)}, nil
}

// openPeer opens a device of another process: on a fabric of its own.
func openPeer(t testing.TB, name, addr string, mtu verbs.MTU) roceEnd {
	t.Helper()
	a := netip.MustParseAddr(addr)
	f := fabric.New(fabric.Config{Seed: conformanceSeed})
	p := must.Get(soft.New(soft.Config{Fabric: f, CM: patientCM, Devices: []soft.DeviceConfig{{Name: name, Addr: a, Link: soft.LinkPeers, MTU: mtu}}}))(t)
	ctx := must.Get(p.Open(name))(t)
	t.Cleanup(func() { must.Do(t, ctx.Close()) })
	return roceEnd{p, f, ctx, verbs.GIDFromAddr(a)}
}

// twoScripts adapts the fabrics of two ends: each has the faults of what its device sends.
type twoScripts [2]roceEnd

func (s twoScripts) Set(from, to verbs.GID, x verbstest.Fault) {
	for _, e := range s {
		if e.gid == from {
			scripts{e.fab}.Set(from, to, x)
		}
	}
}

func (s twoScripts) Heal() {
	for _, e := range s {
		scripts{e.fab}.Heal()
	}
}

// overUDP runs the suite on two devices that reach each other by UDP.
func overUDP(t *testing.T, name string, a, b roceEnd) {
	t.Helper()
	caps := must.Get(verbstest.CapsOf(a.ctx, b.ctx))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst, caps.RandomKeys = true, true, true, true, true
	caps.CMUDP, caps.CQResize, caps.LastWQE, caps.CheckedHandles = true, true, true, true
	caps.Faults = twoScripts{a, b}
	caps.MaxMcastQP = 0
	p := verbstest.Pair{
		Name: name, Caps: caps, MinTimeout: 12, // 17 ms
		A: verbstest.Endpoint{Provider: a.provider, Context: a.ctx}, B: verbstest.Endpoint{Provider: b.provider, Context: b.ctx},
	}
	if sys.Portable {
		p.MinTimeout = 15 // 134 ms: a datagram passes two more goroutines
	} else {
		p.Caps.Persistent = func(size int) (*mem.Arena, error) {
			return mem.MapFile(filepath.Join(t.TempDir(), "persistent"), size)
		}
	}
	r := verbstest.Run(t, p)
	absent := map[string]bool{}
	for _, x := range r.Results {
		absent[x.Name] = x.Reason == "no virtual clock" || x.Reason == "devices cannot be unplugged, nor ports taken down" ||
			strings.Contains(x.Reason, "multicast group")
	}
	complete(t, r, absent)
}

// Devices of two machines, as RDMA adapters reach each other.
func TestConformanceRoCE(t *testing.T) {
	if !netns.Possible() {
		overUDP(t, "soft_udp", openRoCE(t, "left"), openRoCE(t, "right"))
		return
	}
	captured(t, false, nil, func() {
		overUDP(t, "soft_udp", openRoCEAt(t, "left", "127.0.0.1"), openRoCEAt(t, "right", "127.0.0.2"))
	})
}

// Devices of two processes.
func TestConformancePeers(t *testing.T) {
	if !udp.ReportsTo {
		t.Skip("the portable socket does not choose its source: two devices of one machine would have one address")
	}
	overUDP(t, "soft_peers", openPeer(t, "left", "127.0.0.1", verbs.MTU32768), openPeer(t, "right", "127.0.0.2", verbs.MTU32768))
}

func TestConformancePeersIPv6(t *testing.T) {
	if !udp.ReportsTo {
		t.Skip("the portable socket does not choose its source: two devices of one machine would have one address")
	}
	captured(t, true, []string{"fd00::1", "fd00::2"}, func() {
		overUDP(t, "soft_peers_ipv6", openPeer(t, "left", "fd00::1", verbs.MTU4096), openPeer(t, "right", "fd00::2", verbs.MTU4096))
	})
}

func TestConformanceRoCEIPv6(t *testing.T) {
	captured(t, false, []string{"fd00::1", "fd00::2"}, func() {
		overUDP(t, "soft_udp_ipv6", openRoCEAt(t, "left", "fd00::1"), openRoCEAt(t, "right", "fd00::2"))
	})
}
