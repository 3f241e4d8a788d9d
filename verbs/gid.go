package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// ErrNoGID means that a port has no address to send from: its network device has no IP address,
// or is down.
var ErrNoGID = sentinel.Later("verbs: the port has no usable address")

// maxSGIDIndex is the last entry of an address table that a path can name:
// sgid_index of ibv_global_route has 8 bits, however long the table is.
const maxSGIDIndex = 1<<8 - 1

// ChooseGID returns the entry of a port's address table to send from. On InfiniBand that is entry
// 0. On Ethernet it is the best entry by
//
//  1. protocol: RoCEv2, then RoCEv1, then any other (iWARP);
//  2. of an [Addresser] its addresses, then those of other name spaces; of a device with all
//     addresses of the machine (DeviceInfo.AnyAddr), its own, then any other;
//  3. address: IPv4, then global IPv6, then link-local;
//  4. index: the lowest.
//
// Entry 0 of a RoCE port is usually a link-local address of RoCEv1, which routers do not forward
// and which a peer that sends by RoCEv2 does not hear.
//
// It considers the first 256 entries, the ones that an [AHAttr] can name, and does not block beyond the
// system calls for that; any goroutine may call it. A port without an entry is ErrNoGID. The
// table changes with the addresses of the network device, so choose again for every connection.
//
// Implements: the choice that ibv_devinfo -v leaves to its reader, by ibv_query_port and
// ibv_query_gid_table.
func ChooseGID(ctx Context, port uint8) (GIDEntry, error) {
	p, err := ctx.QueryPort(port)
	if err != nil {
		return GIDEntry{}, err
	}
	if p.LinkLayer != LinkEthernet {
		g, err := ctx.QueryGID(port, 0)
		if err == nil && g == (GID{}) {
			err = noGID(ctx, port, "entry 0 is empty")
		}
		return GIDEntry{GID: g, Port: port, Type: GIDInfiniBand}, err
	}
	var best GIDEntry
	top, own := 0, []netip.Addr(nil)
	if a, ok := ctx.(Addresser); ok {
		if own, err = a.Addrs(); err != nil && !errors.Is(err, ErrNoGID) {
			return GIDEntry{}, err
		}
	} else if d := ctx.Device(); d.AnyAddr {
		own = d.Addr
	}
	entries, err := ctx.QueryGIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	for _, e := range entries {
		if r := gidRank(e, own); r > top && e.Port == port && e.Index <= maxSGIDIndex {
			best, top = e, r
		}
	}
	if top == 0 {
		return GIDEntry{}, noGID(ctx, port, fmt.Sprintf("none in a table of %d; has its network device an IP address, and is it up?", p.GIDTblLen))
	}
	return best, nil
}

// ChoosePort returns the port of a device to use: the first that is active and has an address, else
// the first that is active, else port 1. It does not block beyond the system calls for that; any
// goroutine may call it. A port goes down and comes up, so choose again for what is made later.
//
// Implements: the choice that ibv_devinfo leaves to its reader, by ibv_query_device and ibv_query_port.
func ChoosePort(ctx Context) (uint8, error) {
	d, err := ctx.QueryDevice()
	if err != nil {
		return 0, err
	}
	if d.PhysPorts <= 1 {
		return 1, nil
	}
	active := uint8(0)
	for port := uint8(1); int(port) <= d.PhysPorts; port++ {
		p, err := ctx.QueryPort(port)
		if err != nil {
			return 0, err
		}
		if p.State != PortActive {
			continue
		}
		_, err = ChooseGID(ctx, port)
		switch {
		case err == nil:
			return port, nil
		case !errors.Is(err, ErrNoGID):
			return 0, err
		case active == 0:
			active = port
		}
	}
	return max(active, 1), nil
}

// FindGID returns the entry of a port's address table that has an address, for RoCEv2 or for any
// other protocol; the first of several. It considers the first 256 entries and does not block
// beyond the system calls for that; any goroutine may call it. An address that the port does not
// have, or has lost, is ErrNoGID.
//
// Implements: ibv_find_gid_index of libibverbs/verbs.c.
func FindGID(ctx Context, port uint8, g GID, v2 bool) (GIDEntry, error) {
	entries, err := ctx.QueryGIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	for _, e := range entries {
		if e.Port == port && e.Index <= maxSGIDIndex && e.GID == g && (e.Type == GIDRoCEv2) == v2 {
			return e, nil
		}
	}
	return GIDEntry{}, noGID(ctx, port, fmt.Sprintf("%v is not in its table", g))
}

func noGID(ctx Context, port uint8, why string) error {
	return &OpError{Op: "ibv_query_gid_table", Object: fmt.Sprintf("port %d of %v", port, ctx), Err: fmt.Errorf("%w: %s", ErrNoGID, why)}
}

// gidRank is the order of ChooseGID; 0 is an entry that no program can use. The protocol counts
// more than whether the address is among own, and that more than the kind of address.
func gidRank(e GIDEntry, own []netip.Addr) int {
	const kinds = 4
	protocol, ok := map[GIDType]int{GIDInfiniBand: 0, GIDRoCEv1: 1, GIDRoCEv2: 2}[e.Type]
	a := netip.AddrFrom16(e.GID)
	if !ok || !e.GID.Unicast() {
		return 0
	}
	kind := 2
	switch {
	case a.Is4In6():
		kind = 3
	case a.IsLinkLocalUnicast():
		kind = 1
	}
	if slices.ContainsFunc(own, func(a netip.Addr) bool { return a.WithZone("") == e.GID.Addr() }) {
		kind += kinds
	}
	return protocol*2*kinds + kind
}
