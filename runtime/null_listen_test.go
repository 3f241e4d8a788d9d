//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// listenKinds are what is at all addresses of a device. Each opens one at a host and a port, and returns the addresses
// at which it is, without their ports, which are the same; the test closes it.
var listenKinds = map[string]func(t *testing.T, rt *Runtime, addr string) ([]netip.Addr, error){
	"listener": func(t *testing.T, rt *Runtime, addr string) ([]netip.Addr, error) {
		l, err := rt.Listen(addr)
		if err != nil {
			return nil, err
		}
		defer func() { must.Do(t, l.Close(testContext(t))) }()
		return onePort(t, l.sh, l.Addr(), l.listening.ids), nil
	},
	"datagrams": func(t *testing.T, rt *Runtime, addr string) ([]netip.Addr, error) {
		p, err := rt.ListenPacket(addr, Options{})
		if err != nil {
			return nil, err
		}
		defer func() { must.Do(t, p.Close(testContext(t))) }()
		return append(onePort(t, p.sh, p.Addr(), p.others.ids), p.Addr().Addr()), nil
	},
}

// onePort returns the addresses of ids, and checks that their port is that of addr.
func onePort(t *testing.T, sh *shard, addr netip.AddrPort, ids map[netip.Addr]verbs.CMID) (at []netip.Addr) {
	t.Helper()
	must.Do(t, sh.r.Do(testContext(t), func() {
		for _, id := range ids {
			if id.LocalAddr().Port() != addr.Port() {
				t.Errorf("it is at %v, want port %d", id.LocalAddr(), addr.Port())
			}
		}
		at = slices.Collect(maps.Keys(ids))
	}))
	return at
}

// listenFaulty opens the kind of listener with a fault of rdma_bind_addr, from the nth call on for count calls, and
// returns its addresses, how often the fault applied, and its error.
func listenFaulty(t *testing.T, kind string, rt *Runtime, addr string, e syscall.Errno, nth, count uint64) (at []netip.Addr, hits int, err error) {
	t.Helper()
	null := nullControl(t)
	defer null.Clear()
	fault := must.Get(null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: "rdma_bind_addr", Nth: nth, Count: count, Err: e}))(t)
	at, err = listenKinds[kind](t, rt, addr)
	return at, int(null.Hits(fault)), err
}

// Rule: if the port that was chosen is in use at one of the device's addresses, another one is tried, portTries times;
// a port that was given is not.
func TestListenTriesAnotherPort(t *testing.T) {
	profile(t, "mlx5")
	rt := nullBed.open(t, Config{Provider: nullBedProvider(t, dualStack)}, 0)
	for kind := range listenKinds {
		if at, _, err := listenFaulty(t, kind, rt, ":0", syscall.EADDRINUSE, 2, 1); err != nil || len(at) != 3 {
			t.Errorf("%s: with one port in use it is at %v, error %v; want the three addresses of the device", kind, at, err)
		}
		for addr, want := range map[string]int{":0": portTries, ":7471": 1} {
			if _, tries, err := listenFaulty(t, kind, rt, addr, syscall.EADDRINUSE, 2, 0); !errors.Is(err, syscall.EADDRINUSE) || tries != want {
				t.Errorf("%s: with each port in use at %s: %v after %d tries, want EADDRINUSE after %d", kind, addr, err, tries, want)
			}
		}
	}
}

// Rule: an address that an interface has lost since the addresses were read is left out, whichever it is. If no other
// is left, or if another call fails, that is the error.
func TestListenLeavesOutALostAddress(t *testing.T) {
	profile(t, "mlx5")
	rt := nullBed.open(t, Config{Provider: nullBedProvider(t, dualStack)}, 0)
	all := must.Get(rt.addrs())(t)
	for kind := range listenKinds {
		for i := range all {
			at, _, err := listenFaulty(t, kind, rt, ":0", syscall.EADDRNOTAVAIL, uint64(i+1), 1)
			if want := slices.Delete(slices.Clone(all), i, i+1); err != nil || !sameAddrs(at, want) {
				t.Errorf("%s: without %v it is at %v, error %v; want %v", kind, all[i], at, err, want)
			}
		}
		if at, _, err := listenFaulty(t, kind, rt, ":0", syscall.EADDRNOTAVAIL, 2, 0); err != nil || !sameAddrs(at, all[:1]) {
			t.Errorf("%s: with only %v left it is at %v, error %v", kind, all[0], at, err)
		}
		for _, addr := range []string{":0", "127.0.0.1:0"} {
			if _, _, err := listenFaulty(t, kind, rt, addr, syscall.EADDRNOTAVAIL, 1, 0); !errors.Is(err, syscall.EADDRNOTAVAIL) {
				t.Errorf("%s: at %s without any address the error is %v, want EADDRNOTAVAIL", kind, addr, err)
			}
		}
		if _, _, err := listenFaulty(t, kind, rt, ":0", syscall.EACCES, 2, 1); !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s: with another error of an address the error is %v, want EACCES", kind, err)
		}
	}
}

// sameAddrs reports whether a and b are the same addresses, in any order.
func sameAddrs(a, b []netip.Addr) bool {
	order := func(s []netip.Addr) []netip.Addr { return slices.SortedFunc(slices.Values(s), netip.Addr.Compare) }
	return slices.Equal(order(a), order(b))
}
