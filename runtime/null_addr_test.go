//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
)

// dualStack is a loopback interface with addresses of all kinds, which the profile mlx5 has.
var dualStack = ibv.Interface{Index: 1, Name: "lo", Loopback: true, Addrs: []netip.Prefix{
	netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("fd00:5e::1/64"), netip.MustParsePrefix("fe80::5e/64")}}

// Rule: the address table of a device, with addresses of other kinds and name spaces in front, does not
// keep a Dial from its peer: the source is the device's address of the same kind. The error of a Dial to an address
// that the device does not reach names the addresses that it has.
func TestDialOfADualStackDevice(t *testing.T) {
	profile(t, "mlx5")
	p := nullBedProvider(t, dualStack)
	client, server := nullBed.open(t, Config{Provider: p}, 0), nullBed.open(t, Config{Provider: p}, 1)
	ln := must.Get(server.Listen(":0"))(t)
	for to, from := range map[string]string{"127.0.0.2": "127.0.0.1", "fd00:5e::2": "fd00:5e::1", "fe80::5f%lo": "fe80::5e%lo"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(to), ln.Addr().Port())
		c, err := client.Dial(testContext(t), at.String())
		if err != nil || c.LocalAddr().Addr() != netip.MustParseAddr(from) {
			t.Errorf("the connection to %v is %v, %v; want one from %v", at, c, err, from)
		}
	}
	_, err := client.Dial(testContext(t), "192.0.2.1:7471")
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "device null0 has the addresses [127.0.0.1 fd00:5e::1 fe80::5e%lo]") {
		t.Errorf("the error of an address that is not reached is %v, want ErrUnreachable with the device's addresses", err)
	}
	_, err = client.Dial(testContext(t), "[fe80::5f]:7471")
	if !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), "%eth0") {
		t.Errorf("the error of a link-local address without a zone is %v, want ErrAddress that asks for it", err)
	}
}

// Rule: a listener without a host is at all addresses of its device, of each family and link-local with
// its zone, at one port, which a listener of another device may have too; and at an address that the device gets later.
func TestListenAtAllAddressesOfTheDevice(t *testing.T) {
	profile(t, "mlx5")
	p := nullBedProvider(t, dualStack)
	client, server := nullBed.open(t, Config{Provider: p}, 0), nullBed.open(t, Config{Provider: p}, 1)
	ln := must.Get(server.Listen(":0"))(t)
	must.Get(client.Listen(fmt.Sprintf(":%d", ln.Addr().Port())))(t)
	dial := func(host string) {
		t.Helper()
		at := netip.AddrPortFrom(netip.MustParseAddr(host), ln.Addr().Port())
		if c, err := client.Dial(testContext(t), at.String()); err != nil || c.RemoteAddr() != at {
			t.Errorf("dialing %v: %v, %v", at, c, err)
		}
	}
	for _, host := range []string{"127.0.0.2", "fd00:5e::2", "fe80::5f%lo"} {
		dial(host)
	}
	null, later := nullControl(t), netip.MustParseAddr("127.0.1.2")
	must.Do(t, null.SetGID("null1", 60, verbs.GIDFromAddr(later), 1))
	for ctx, has := testContext(t), false; !has; {
		if err := errors.Join(ctx.Err(), ln.sh.r.Do(context.Background(), func() { has = ln.listening.ids[later] != nil })); err != nil {
			t.Fatalf("waiting until the listener is at a new address: %v", err)
		}
	}
	dial(later.String())
}

// Rule: a listener gets an address that was still checked for duplicates when the device reported it, though
// nothing is reported when the check has ended.
func TestListenerGetsAnAddressThatWasChecked(t *testing.T) {
	profile(t, "mlx5")
	lo := dualStack
	lo.Addrs, lo.Checking = lo.Addrs[:1], lo.Addrs[1:2]
	var checked atomic.Bool
	p := nullInterfaces(t, func() []ibv.Interface {
		if checked.Load() {
			return []ibv.Interface{dualStack}
		}
		return []ibv.Interface{lo}
	})
	client, server := nullBed.open(t, Config{Provider: nullBedProvider(t, dualStack)}, 0), nullBed.open(t, Config{Provider: p}, 1)
	ln := must.Get(server.Listen(":0"))(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("fd00:5e::2"), ln.Addr().Port())
	if _, err := client.Dial(testContext(t), at.String()); err == nil {
		t.Errorf("dialing %v while it is checked succeeded", at)
	}
	checked.Store(true)
	for ctx, has := testContext(t), false; !has; {
		if err := errors.Join(ctx.Err(), ln.sh.r.Do(context.Background(), func() { has = ln.listening.ids[at.Addr()] != nil })); err != nil {
			t.Fatalf("waiting until the listener is at the address: %v", err)
		}
	}
	must.Get(client.Dial(testContext(t), at.String()))(t)
}

// Rule: datagrams without a host are at all addresses of their device at one port, and at an address that
// the device gets later; a reply is from the address to which the datagram was sent.
func TestDatagramsAtAllAddressesOfTheDevice(t *testing.T) {
	profile(t, "mlx5")
	p := nullBedProvider(t, dualStack)
	client, server := nullBed.open(t, Config{Provider: p}, 0), nullBed.open(t, Config{Provider: p}, 1)
	a, b := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{})
	ask := func(host string) {
		t.Helper()
		at := netip.AddrPortFrom(netip.MustParseAddr(host), b.Addr().Port())
		if e, err := a.Resolve(testContext(t), at.String()); err != nil {
			t.Errorf("resolving %v: %v", at, err)
		} else {
			must.Do(t, e.Close())
		}
	}
	for _, host := range []string{"127.0.0.2", "fd00:5e::2", "fe80::5f%lo"} {
		ask(host)
	}
	null, later := nullControl(t), netip.MustParseAddr("127.0.1.2")
	must.Do(t, null.SetGID("null1", 60, verbs.GIDFromAddr(later), 1))
	at := func(ip netip.Addr, want bool) {
		for ctx, has := testContext(t), !want; has != want; {
			if err := errors.Join(ctx.Err(), b.sh.r.Do(context.Background(), func() { has = b.others.ids[ip] != nil })); err != nil {
				t.Fatalf("waiting until the datagrams are at %v: %v, want %v: %v", ip, has, want, err)
			}
		}
	}
	at(later, true)
	ask(later.String())
	must.Do(t, null.SetGID("null1", 60, verbs.GID{}, 0))
	at(later, false)
}

// Rule: datagrams are not at the addresses of other ports of the device: their queue pair has one port.
func TestDatagramsAreAtOnePortOfTheDevice(t *testing.T) {
	p := mustListenPacket(t, nullBed.open(t, Config{Provider: nullBedProvider(t, dualStack)}, 1), Options{})
	must.Do(t, p.sh.r.Do(testContext(t), func() {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), 0)
		for _, x := range []struct {
			port uint8
			want bool
		}{{p.port, true}, {p.port + 1, false}} {
			p.others.port = x.port
			if _, err := p.others.add(at); (err == nil) != x.want || err != nil && !elsewhere(err) {
				t.Errorf("listening at %v for port %d: %v; the address is of port %d", at, x.port, err, p.port)
			}
		}
	}))
}

// Rule: to listen on a device without an address is an error that says so.
func TestListenWithoutAnAddress(t *testing.T) {
	null := nullControl(t)
	rt := nullBed.open(t, Config{}, 0)
	must.Do(t, null.SetGID("null0", 0, verbs.GID{}, 0))
	if _, err := rt.Listen(":0"); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), "device null0 has no IP address") {
		t.Errorf("Listen returned %v, want ErrAddress that says that the device has no address", err)
	}
}
