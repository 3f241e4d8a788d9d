package rpma

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
)

// Side says whose address selects a device.
type Side int

// The sides of FindDevice.
const (
	Local  Side = iota // the address is of the device
	Remote             // the address is reached through the device
)

// FindDevice returns the name of the device that has an address, or that the system uses to reach it. The
// name is for Config.Device of package runtime. The device is one of provider, or, if provider is nil, of
// the provider that the environment variable VERBENA_DEVICE names, or of the software RNIC. FindDevice
// waits for the resolver of the system if addr is a name, until ctx ends.
//
// Errors: ErrInvalid for an empty address or an unknown side; ErrProvider if addr cannot be resolved, or
// if no device has the address.
//
// Implements: rpma_utils_get_ibv_context.
func FindDevice(ctx context.Context, provider verbs.Provider, addr string, side Side) (name string, err error) {
	const op = "rpma_utils_get_ibv_context"
	if ctx == nil || addr == "" || side != Local && side != Remote {
		return "", invalid(op, "the address %q, the side %d or the context", addr, side)
	}
	at, err := resolve(ctx, addr)
	if err != nil {
		return "", fail(op, ErrProvider, err)
	}
	if side == Remote {
		if at, err = sourceFor(at); err != nil {
			return "", fail(op, ErrProvider, err)
		}
	}
	if provider == nil {
		chosen, err := open.Choose(nil, "")
		if err != nil {
			return "", fail(op, ErrProvider, err)
		}
		provider = chosen.Provider
	}
	devices, err := provider.Devices()
	if err != nil {
		return "", fail(op, ErrProvider, err)
	}
	with := func(has func(verbs.DeviceInfo) bool) int { return slices.IndexFunc(devices, has) }
	i := with(func(d verbs.DeviceInfo) bool { return slices.Contains(d.Addr, at) })
	if i < 0 && isOwn(at) {
		i = with(func(d verbs.DeviceInfo) bool { return d.AnyAddr })
	}
	if i < 0 {
		return "", fail(op, ErrProvider, fmt.Errorf("%w: none of %d has the address %v", verbs.ErrUnknownDevice, len(devices), at))
	}
	return provider.Name() + ":" + devices[i].Name, nil
}

// resolve returns an address of a host, of IPv4 if there is one.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if at, err := netip.ParseAddr(host); err == nil {
		return at.Unmap(), nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, at := range all {
		if at.Unmap().Is4() {
			return at.Unmap(), nil
		}
	}
	return all[0], nil // a lookup without an error has found one
}

// sourceFor returns the address from which the system sends to an address. It sends nothing.
func sourceFor(to netip.Addr) (netip.Addr, error) {
	const discard = 9 // any port: connecting a UDP socket chooses the route only
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// isOwn reports whether the machine has an address.
func isOwn(at netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.Contains(at.AsSlice()) && (at.IsLoopback() || n.IP.Equal(at.AsSlice()))
	})
}
