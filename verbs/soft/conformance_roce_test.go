package soft_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
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

// openRoCE opens a device at an address of the loopback network. Other processes of this machine may
// have the first that it tries.
func openRoCE(t *testing.T, name string) roceEnd {
	t.Helper()
	for {
		addr := netip.AddrFrom4([4]byte{127, byte(rand.N(254) + 1), byte(rand.N(256)), byte(rand.N(254) + 1)})
		f := fabric.New(fabric.Config{Seed: conformanceSeed})
		p := must.Get(soft.New(soft.Config{Fabric: f, Devices: []soft.DeviceConfig{{Name: name, Addr: addr, Link: soft.LinkRoCE}}}))(t)
		ctx, err := p.Open(name)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		must.Do(t, err)
		t.Cleanup(func() {
			if err := ctx.Close(); err != nil {
				t.Errorf("closing the context of %s: %v", name, err)
			}
		})
		return roceEnd{p, f, ctx, verbs.GIDFromAddr(addr)}
	}
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

// driver has both devices handle what they have sent each other.
type driver struct {
	a, b roceEnd
	lost int64 // datagrams sent that did not arrive
}

// drive waits for datagrams that are under way: the portable socket has a goroutine that reads. One that
// takes longer than arrival is lost, or was sent elsewhere.
func (d *driver) drive() {
	const arrival = 200 * time.Millisecond
	for end := time.Now().Add(arrival); ; runtime.Gosched() {
		soft.Progress(d.a.ctx)
		b, a := soft.Progress(d.b.ctx), soft.Progress(d.a.ctx)
		missing := int64(a.Sent+b.Sent) - int64(a.Received+b.Received)
		if missing == d.lost {
			return
		}
		if time.Now().After(end) {
			d.lost = missing
			return
		}
	}
}

// Devices that reach each other by UDP, as those of two processes do.
func TestConformanceRoCE(t *testing.T) {
	a, b := openRoCE(t, "left"), openRoCE(t, "right")
	caps := must.Get(verbstest.CapsOf(a.ctx, b.ctx))(t)
	caps.CM, caps.CQOverrun, caps.AccessEvents, caps.CommEst, caps.RandomKeys = true, true, true, true, true
	caps.CMUDP, caps.CQResize, caps.LastWQE, caps.CheckedHandles = true, true, true, true
	caps.Faults = twoScripts{a, b}
	caps.MaxMcastQP = 0
	p := verbstest.Pair{
		Name: "soft_udp", Caps: caps, MinTimeout: 12, // 17 ms
		Drive: (&driver{a: a, b: b}).drive,
		A:     verbstest.Endpoint{Provider: a.provider, Context: a.ctx}, B: verbstest.Endpoint{Provider: b.provider, Context: b.ctx},
	}
	if sys.Portable {
		p.MinTimeout = 14 // 67 ms: a datagram passes two more goroutines
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
