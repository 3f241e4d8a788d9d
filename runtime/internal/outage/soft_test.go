package outage

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// softRig is two peers on devices a and b of their own software RNIC.
type softRig struct {
	t    testing.TB
	p    *soft.Provider
	f    *fabric.Fabric
	out  [2]*lines
	a, b *Peer
}

// softPatience is the timeout for steps that take milliseconds on the software RNIC.
const softPatience = time.Minute

var softAddrs = [2]netip.AddrPort{netip.MustParseAddrPort("10.9.0.1:7000"), netip.MustParseAddrPort("10.9.0.2:7000")}

// newSoftRig starts both peers, which serve and dial each other.
func newSoftRig(t testing.TB, change func(*Config)) *softRig {
	t.Helper()
	r := newSoftDevices(t)
	r.a, r.b = r.open(0, change), r.open(1, change)
	r.must("connected")
	return r
}

// newSoftDevices returns a rig without peers.
func newSoftDevices(t testing.TB) *softRig {
	t.Helper()
	r := &softRig{t: t, f: fabric.New(fabric.Config{})}
	var err error
	if r.p, err = soft.New(soft.Config{Fabric: r.f, Devices: []soft.DeviceConfig{
		{Name: "a", Addr: softAddrs[0].Addr()}, {Name: "b", Addr: softAddrs[1].Addr()},
	}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *softRig) open(i int, change func(*Config)) *Peer {
	r.t.Helper()
	r.out[i] = newLines()
	cfg := Config{
		Runtime: verbena.Config{Provider: r.p, Device: string(rune('a' + i))},
		Serve:   softAddrs[i], Dial: softAddrs[1-i], Seed: uint64(i + 1), Out: r.out[i],
	}
	if change != nil {
		change(&cfg)
	}
	p, err := Open(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// must waits until both peers have said line. If one does not say it, must fails the test, with the state of both
// peers and the stacks of all goroutines.
func (r *softRig) must(line string) {
	r.t.Helper()
	for i, out := range r.out {
		if !out.wait(line, softPatience) {
			stacks := make([]byte, 4<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			r.t.Fatalf("%c did not say %q within %v; said: %s\n%s%s%s",
				'a'+i, line, softPatience, out, r.a.State(), r.b.State(), stacks)
		}
	}
}

// Rule: a fixed amount of work between two peers is completed, with every byte right and no failed
// operation.
func TestWorkIsDone(t *testing.T) {
	const rounds = 50
	r := newSoftRig(t, func(c *Config) { c.Work = rounds })
	r.must("worked")
	for _, p := range []*Peer{r.a, r.b} {
		rep := good(t, p.Stop())
		for k, want := range map[Kind]int{
			KindDial: len(roles), KindAccept: len(roles), KindWrite: 3 * rounds, KindRead: 2 * rounds, KindWriteImm: rounds,
			KindAtomic: rounds + 1, KindBig: 2 * rounds, KindBind: rounds, KindInvalidate: rounds, KindEcho: 4 * rounds, KindSend: 7 * rounds,
		} {
			if got := rep.OK(k); got != want {
				t.Errorf("%s: %d of %q, want %d", rep.Device, got, k, want)
			}
		}
	}
}

// Rule: when the device is removed under load, every connection ends with it, all is closed within
// RemovalBound, and the peer continues until its own end.
func TestRemovalEndsTheLoad(t *testing.T) {
	r := newSoftRig(t, nil)
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	<-r.a.Removed()
	rep := good(t, r.a.Stop())
	if !rep.Removed || rep.Failures(ClassRemoved) < len(roles) || rep.OK(KindEnd) < len(roles) {
		t.Errorf("removed %v, %d operations say so, %d connections ended", rep.Removed, rep.Failures(ClassRemoved), rep.OK(KindEnd))
	}
	if rep := good(t, r.b.Stop()); rep.Removed {
		t.Error("the peer's device was not removed")
	}
}

// Rule: when the network is gone, all outstanding operations at both ends end within their bounds,
// a lone receive included; when it is back, both connect again.
func TestLostNetworkEndsTheLoad(t *testing.T) {
	r := newSoftRig(t, func(c *Config) {
		c.Runtime.Conn.PeerTimeout, c.Runtime.Conn.KeepAlive = time.Second, time.Second
	})
	if err := r.p.SetPort("a", false); err != nil {
		t.Fatal(err)
	}
	r.a.Mark()
	r.b.Mark()
	r.must("ended")
	if err := r.p.SetPort("a", true); err != nil {
		t.Fatal(err)
	}
	r.a.Heal()
	r.b.Heal()
	r.must("connected again")
	for _, p := range []*Peer{r.a, r.b} {
		rep := good(t, p.Stop())
		if n := rep.Failures(ClassRetries, ClassPeerTimeout); n < len(roles) {
			t.Errorf("%d operations say that the peer did not answer", n)
		}
	}
}

// Rule: Mark waits for the connections, too, also for one without an outstanding operation. Otherwise the network may
// be back before this connection has ended; the connection then lives on, and is not dialed again.
func TestMarkWaitsForConnections(t *testing.T) {
	r, at := newSoftDevices(t), freePort(t)
	r.b = r.open(1, func(c *Config) { c.Serve, c.Dial, c.Plain = netip.AddrPort{}, netip.AddrPort{}, at })
	r.a = r.open(0, func(c *Config) { c.Serve, c.Dial, c.DialPlain, c.Work = netip.AddrPort{}, netip.AddrPort{}, at, 1 })
	r.out[0].must(t, softPatience, "worked") // the dialing end of a plain connection then waits for nothing
	r.a.Mark()
	if said := r.out[0].String(); strings.Contains(said, "ended") {
		t.Errorf("the connection is open, and this was said: %s", said)
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
	r.out[0].must(t, softPatience, "ended")
	for _, p := range []*Peer{r.a, r.b} {
		good(t, p.Stop())
	}
}

// freePort returns a TCP address that is free.
func freePort(t testing.TB) netip.AddrPort {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// Rule: connections without a connection manager carry the load, too, and report the removal of
// their device.
func TestPlainConnectionsCarryTheLoad(t *testing.T) {
	at := freePort(t)
	r := newSoftRig(t, func(c *Config) {
		if c.Runtime.Device == "a" {
			c.Plain = at
		} else {
			c.DialPlain = at
		}
	})
	if err := r.p.Remove("b"); err != nil {
		t.Fatal(err)
	}
	<-r.b.Removed()
	for _, p := range []*Peer{r.b, r.a} {
		good(t, p.Stop())
	}
}
