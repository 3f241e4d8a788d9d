//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// gidTable is what the addresses of a device are made of.
type gidTable struct {
	iwarp   bool
	entries []gidOf
}

// gidOf is an entry of the address table of a port.
type gidOf struct {
	gid   verbs.GID
	index uint32    // of its network interface; 0: not known
	link  C.uint8_t // of the port
}

// readTable reads the address tables of all ports of an open device, whole: entries may be at any
// index (an mlx5 has tables of 256, sparse where there are name spaces). Entries that differ in the
// type only are one. With an errno, op is the call that failed.
func readTable(t *verbsTable, c *C.struct_vb_context) (table gidTable, op string, errno syscall.Errno) {
	table.iwarp = c.device.transport_type == C.VB_TRANSPORT_IWARP
	ports, op, errno := readPorts(t, c)
	if errno != 0 {
		return table, op, errno
	}
	entries, errno := readGIDs(t, c, ports)
	if errno == syscall.EOPNOTSUPP {
		entries, errno = readEach(t, c, ports), 0
	}
	for _, e := range entries {
		if e.Port < 1 || int(e.Port) > len(ports) {
			continue
		}
		if g := (gidOf{gid: e.GID, index: e.NetDev, link: ports[e.Port-1].link_layer}); !slices.Contains(table.entries, g) {
			table.entries = append(table.entries, g)
		}
	}
	return table, "ibv_query_gid_table", errno
}

// readPorts reads the attributes of all ports; port 1 is ports[0]. With an errno, op is the call that failed.
func readPorts(t *verbsTable, c *C.struct_vb_context) (ports []C.struct_vb_port_attr, op string, errno syscall.Errno) {
	var d C.struct_vb_device_attr_ex
	if e := C.shim_query_device(t, c, &d); e != 0 {
		return nil, "ibv_query_device", syscall.Errno(e)
	}
	ports = make([]C.struct_vb_port_attr, d.orig_attr.phys_port_cnt)
	for i := range ports {
		if e := C.shim_query_port(t, c, C.uint8_t(i+1), &ports[i]); e != 0 {
			return nil, "ibv_query_port", syscall.Errno(e)
		}
	}
	return ports, "", 0
}

// maxGIDs is the largest number of entries of 32 bytes that fit into an argument of the kernel's interface, whose length
// has 16 bits (struct ib_uverbs_attr).
const maxGIDs = (1<<16 - 1) / C.sizeof_struct_vb_gid_entry

// readGIDs reads the address tables of the ports by one call.
func readGIDs(t *verbsTable, c *C.struct_vb_context, ports []C.struct_vb_port_attr) ([]verbs.GIDEntry, syscall.Errno) {
	most := 0
	for i := range ports {
		most += max(0, int(ports[i].gid_tbl_len))
	}
	if most == 0 {
		return nil, 0
	}
	all := make([]C.struct_vb_gid_entry, min(most, maxGIDs))
	n := C.shim_query_gid_table(t, c, &all[0], C.size_t(len(all)))
	if n < 0 {
		return nil, syscall.Errno(-n)
	}
	table := make([]verbs.GIDEntry, 0, n)
	for i := range all[:n] {
		if e := entryOf(&all[i]); e.GID != (verbs.GID{}) {
			table = append(table, e)
		}
	}
	return table, 0
}

// readEach reads the tables entry by entry, as a library before v33 can: without types and interfaces.
func readEach(t *verbsTable, c *C.struct_vb_context, ports []C.struct_vb_port_attr) (table []verbs.GIDEntry) {
	for p := range ports {
		for i := range ports[p].gid_tbl_len {
			e := verbs.GIDEntry{Port: uint8(p + 1), Index: int(i)}
			if C.shim_query_gid(t, c, C.uint8_t(e.Port), i, (*C.union_vb_gid)(unsafe.Pointer(&e.GID))) == 0 && e.GID != (verbs.GID{}) {
				table = append(table, e)
			}
		}
	}
	return table
}

// addresses returns the addresses among those of the process's network interfaces that the device
// has, best first: IPv4, IPv6, link-local. The table itself may have addresses of interfaces in
// other network name spaces, which the connection manager refuses (ENODEV).
func (table *gidTable) addresses(all []Interface) (out []netip.Addr) {
	for _, g := range table.entries {
		for i := range all {
			for _, a := range g.on(&all[i], table.iwarp) {
				if a.IsLinkLocalUnicast() && a.Is6() {
					a = a.WithZone(all[i].Name)
				}
				if !slices.Contains(out, a) {
					out = append(out, a)
				}
			}
		}
	}
	rank := func(a netip.Addr) int {
		switch {
		case a.IsLinkLocalUnicast():
			return 2
		case a.Is6():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// on returns the addresses that the entry stands for at an interface. On RoCE it is an address
// itself. On InfiniBand and iWARP it is that of the hardware, and stands for each address of the
// interfaces with it: IPoIB's hardware address is a queue pair number and the GID (RFC 4391, 9.1.1),
// Ethernet's is the head of the GID of iWARP. The kernel compares the same (core/cma.c,
// cma_acquire_dev_by_src_ip and rdma_addr_gid_offset).
func (g *gidOf) on(n *Interface, iwarp bool) (out []netip.Addr) {
	const ipoibAt, mac = 4, 6
	switch {
	case iwarp:
		if len(n.Hardware) != mac || g.gid != gidOfMAC(n.Hardware) {
			return nil
		}
	case g.link == C.VB_LINK_LAYER_INFINIBAND:
		if len(n.Hardware) != ipoibAt+len(g.gid) || verbs.GID(n.Hardware[ipoibAt:]) != g.gid {
			return nil
		}
	default:
		ip := g.gid.Addr()
		unknown := g.index == 0 && !ip.IsLinkLocalUnicast()
		if g.gid.Unicast() && (unknown || int(g.index) == n.Index) && n.has(ip) {
			return []netip.Addr{ip}
		}
		return nil
	}
	for _, p := range n.Addrs {
		out = append(out, p.Addr().Unmap())
	}
	return out
}

func gidOfMAC(mac net.HardwareAddr) (g verbs.GID) {
	copy(g[:], mac)
	return g
}

// has reports whether the interface has an address. A loopback interface has all of its network:
// Linux takes each as its own.
func (n *Interface) has(ip netip.Addr) bool {
	return slices.ContainsFunc(n.Addrs, func(p netip.Prefix) bool {
		return p.Addr().Unmap() == ip || n.Loopback && p.Contains(ip)
	})
}

// Addrs reads the table and the interfaces.
//
// Implements: ibv_query_port and ibv_query_gid_table.
func (c *deviceContext) Addrs() ([]netip.Addr, error) {
	out, _, err := c.readAddrs()
	return out, err
}

// readAddrs is Addrs, and returns the interfaces, too.
func (c *deviceContext) readAddrs() (out []netip.Addr, all []Interface, err error) {
	var table gidTable
	if err = c.use("ibv_query_gid_table", func() (e syscall.Errno) {
		table, _, e = readTable(c.t, c.c)
		return e
	}); err != nil {
		return nil, nil, err
	}
	if all, err = c.p.interfaces(); err != nil {
		return nil, nil, fmt.Errorf("reading the network interfaces: %w", err)
	}
	out = table.addresses(all)
	c.addrs.Store(&out)
	later := slices.Clone(all)
	for i := range later {
		later[i].Addrs = later[i].Checking
	}
	c.checking.Store(len(table.addresses(later)) > 0)
	if len(out) == 0 {
		err = opError("ibv_query_gid_table", c.label, 0, "%w: %s", verbs.ErrNoGID, table.missing())
	}
	return out, all, err
}

// Checking reports whether the last reading found an address that is still checked.
func (c *deviceContext) Checking() bool { return c.checking.Load() }

// missing says why a device with this table has no address.
func (table *gidTable) missing() string {
	switch {
	case table.iwarp:
		return "no network interface of this process has the hardware address of the device and an IP address; is the interface up, and in this network name space?"
	case slices.ContainsFunc(table.entries, func(g gidOf) bool { return g.link == C.VB_LINK_LAYER_INFINIBAND }):
		return "no IPoIB interface of this process is on the device and has an IP address (module ib_ipoib; ip address add ... dev ib0)"
	}
	return fmt.Sprintf("none of the %d GIDs of the device is an IP address of a network interface of this process; "+
		"is its interface up, has it an IP address, and is it in this network name space?", len(table.entries))
}

// Source asks the system for the route. A route to an address of this machine goes over the loopback
// interface and names no device: then it is an address of the device of that family. If the route leads over
// another interface into a network in which the device has an address, it is that one: the kernel then routes
// from the interface of the source (Linux drivers/infiniband/core/addr.c, rdma_copy_src_l2_addr and addr4_resolve).
func (c *deviceContext) Source(dst netip.Addr) (netip.Addr, error) {
	src := routed(dst)
	if slices.Contains(*c.addrs.Load(), src) {
		return src, nil
	}
	has, all, err := c.readAddrs() // the addresses may have changed
	switch {
	case errors.Is(err, verbs.ErrNoGID):
		return netip.Addr{}, nil
	case err != nil:
		return netip.Addr{}, err
	case slices.Contains(has, src):
		return src, nil
	}
	here := func(n Interface) bool { return n.has(dst.WithZone("")) }
	alike := func(a netip.Addr) bool {
		return a.Is4() == dst.Is4() && a.IsLinkLocalUnicast() == dst.IsLinkLocalUnicast()
	}
	if i := slices.IndexFunc(has, alike); i >= 0 && (dst.IsLoopback() || slices.ContainsFunc(all, here)) {
		return has[i], nil
	}
	for _, n := range all {
		for _, p := range n.Addrs {
			own := p.Addr().Unmap()
			if own.Is6() && own.IsLinkLocalUnicast() {
				own = own.WithZone(n.Name)
			}
			if p.Contains(dst.WithZone("")) && own.Zone() == dst.Zone() && slices.Contains(has, own) {
				return own, nil
			}
		}
	}
	return netip.Addr{}, nil
}

// routed returns the source address that a connected UDP socket takes; zero where there is no route.
func routed(dst netip.Addr) netip.Addr {
	const discard = 9 // any port will do: a UDP socket sends nothing to connect
	family, to := syscall.AF_INET, sockaddrOf(netip.AddrPortFrom(dst, discard))
	if dst.Is6() {
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, to); err != nil {
		return netip.Addr{}
	}
	switch at, _ := syscall.Getsockname(fd); at := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrFrom4(at.Addr)
	case *syscall.SockaddrInet6:
		src := netip.AddrFrom16(at.Addr).Unmap()
		if at.ZoneId != 0 {
			src = src.WithZone(zoneName(at.ZoneId))
		}
		return src
	}
	return netip.Addr{}
}

func sockaddrOf(a netip.AddrPort) syscall.Sockaddr {
	if a.Addr().Is4() {
		return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zoneIndex(a.Addr().Zone())}
}
