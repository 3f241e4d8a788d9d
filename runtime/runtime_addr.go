package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// A device of the system has the IP addresses of its network interfaces (verbs.Addresser). They are read
// when they are needed, because they change: for Dial the source address of the route to the peer, for a
// listener or datagrams without a host all of them, again whenever the device reports a change. Any other
// device has one address, Runtime.addr.

// addrs returns the addresses of the device, best first. It makes system calls.
func (rt *Runtime) addrs() ([]netip.Addr, error) {
	a, ok := rt.dev.(verbs.Addresser)
	if !ok {
		return []netip.Addr{rt.addr}, nil
	}
	all, err := a.Addrs()
	if errors.Is(err, verbs.ErrNoGID) {
		return nil, fmt.Errorf("%w: device %s has no IP address: %w", ErrAddress, rt.dev.Device().Name, err)
	}
	return all, rt.asRemoved(err)
}

// source returns the address to connect to dst from; the zero Addr if it is left to the connection
// manager. It makes system calls.
func (rt *Runtime) source(dst netip.Addr) (netip.Addr, error) {
	a, ok := rt.dev.(verbs.Addresser)
	if !ok {
		return rt.addr, nil
	}
	src, err := a.Source(dst)
	return src, rt.asRemoved(err)
}

// splitAddr splits "host:port".
func splitAddr(addr string) (host string, port uint16, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q: want host:port", ErrAddress, addr)
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q: the port is not a number below 65536", ErrAddress, addr)
	}
	return host, uint16(n), nil
}

// hosts returns the addresses of a host, which is not empty. An IPv6 address may have a zone. For a device that is not of the
// system IPv4 addresses come first, and IPv6 addresses only if the device has all addresses of this machine
// (verbs.DeviceInfo.AnyAddr).
func (rt *Runtime) hosts(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if _, ok := rt.dev.(verbs.Addresser); ok && ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
			return nil, fmt.Errorf("a link-local address needs the network interface, as in %v%%eth0; device %s has %v", ip, rt.dev.Device().Name, rt.dev.Device().Addr)
		}
		return []netip.Addr{ip.Unmap()}, nil
	}
	_, system := rt.dev.(verbs.Addresser)
	family, none := "ip", errNoAddr
	if !system && !rt.dev.Device().AnyAddr {
		family, none = "ip4", errNoIPv4
	}
	ips, err := rt.cfg.lookupIP(ctx, family, host)
	if err == nil && len(ips) == 0 {
		err = none
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	if !system {
		slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	}
	return ips, err
}

// resolve converts "host:port" to an address to listen at. An empty host is the first of the device's
// addresses.
func (rt *Runtime) resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	find := rt.addrs
	if host != "" {
		find = func() ([]netip.Addr, error) { return rt.hosts(ctx, host) }
	}
	ips, err := find()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %q: %w", ErrAddress, addr, err)
	}
	return netip.AddrPortFrom(ips[0], port), nil
}

// destinations converts "host:port" to destinations to try in this order, each with the source address
// for it: first those to which the system sends from an address of the device, and of these first IPv4. An empty
// host, and the unspecified IP address, which Listener.Addr may return, mean the device's address.
func (rt *Runtime) destinations(ctx context.Context, addr string) ([]addrResolver, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	if host != "" {
		if ips, err = rt.hosts(ctx, host); err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrAddress, addr, err)
		}
	}
	if host == "" || ips[0].IsUnspecified() {
		own, err := rt.addrs()
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrAddress, addr, err)
		}
		ips = own[:1]
	}
	ways := make([]addrResolver, len(ips))
	for i, ip := range ips {
		src, err := rt.source(ip)
		if err != nil {
			return nil, err
		}
		ways[i] = addrResolver{dst: netip.AddrPortFrom(ip, port)}
		if src.IsValid() {
			ways[i].src = netip.AddrPortFrom(src, 0)
		}
	}
	rank := func(w addrResolver) int {
		r := 0
		if !w.src.IsValid() {
			r = 2
		}
		if w.dst.Addr().Is6() {
			r++
		}
		return r
	}
	slices.SortStableFunc(ways, func(a, b addrResolver) int { return cmp.Compare(rank(a), rank(b)) })
	return ways, nil
}

// unreached returns the error of a destination that the device does not reach. It names the addresses
// that the device has, whose networks are the ones that it reaches.
func (rt *Runtime) unreached(dst netip.AddrPort, err error) error {
	d := rt.dev.Device()
	return fmt.Errorf("%w: %v: %w; device %s has the addresses %v", ErrUnreachable, dst, err, d.Name, d.Addr)
}

// allOf reports whether a listener at "host:port" is at all addresses of the device: it has no host, and
// the device has the addresses of network interfaces.
func (rt *Runtime) allOf(addr string) bool {
	_, there := rt.dev.(verbs.Addresser)
	return there && strings.HasPrefix(addr, ":")
}

// listenAt returns the addresses at which to listen: all of the device, or one. The caller holds addrMu
// until it listens; so addrsChanged finds it.
func (rt *Runtime) listenAt(all bool, one netip.Addr) ([]netip.Addr, error) {
	if !all {
		return []netip.Addr{one}, nil
	}
	ips, err := rt.addrs()
	rt.reread()
	return ips, err
}

// checkEvery is how long after a reading of the addresses they are read again, while an interface checks one
// of them for duplicates. The kernel reports a new address before the check, which takes a second or two, and
// nothing after it (Linux net/ipv6/addrconf.c, ipv6_add_addr and addrconf_dad_completed).
const checkEvery = 200 * time.Millisecond

// reread reads the addresses again after checkEvery, if an address is being checked.
func (rt *Runtime) reread() {
	if a, ok := rt.dev.(verbs.Addresser); !ok || !a.Checking() || !rt.rereads.CompareAndSwap(false, true) {
		return
	}
	rt.shards[0].r.After(checkEvery, func() {
		rt.rereads.Store(false)
		rt.addrsChanged()
	})
}

// addrsChanged has the listeners and the datagrams follow the addresses of the device, which it has reported to have changed.
// Any goroutine may call it.
func (rt *Runtime) addrsChanged() {
	if _, ok := rt.dev.(verbs.Addresser); !ok || rt.enter() != nil {
		return
	}
	go func() { // reading makes system calls
		defer rt.leave()
		rt.addrMu.Lock()
		defer rt.addrMu.Unlock()
		all, err := rt.addrs()
		rt.reread()
		if err != nil && !errors.Is(err, verbs.ErrNoGID) {
			return // the device is gone, or the next change is read again
		}
		rt.mu.Lock()
		defer rt.mu.Unlock()
		for l := range rt.listeners {
			l.sh.r.Defer(func() { l.follow(all) })
		}
		for p := range rt.packets {
			p.sh.r.Defer(func() { p.follow(all) })
		}
	}()
}
