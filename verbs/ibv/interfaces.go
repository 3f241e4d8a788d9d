//go:build linux && cgo && !portable

package ibv

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// The flags of an IPv6 address that is being checked for duplicates, and of one that is a duplicate: nobody
// can bind to it (linux/if_addr.h, IFA_F_TENTATIVE and IFA_F_DADFAILED; ipv6_chk_addr).
const tentative, duplicate = 0x40, 0x08

// systemInterfaces reads the interfaces of the process's network name space that are up, and their
// addresses, in one request each: net.Interface.Addrs asks for all addresses for each interface.
func systemInterfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []Interface
	at := map[int]int{} // index of the system: index in out
	for _, n := range all {
		if n.Flags&net.FlagUp != 0 {
			at[n.Index] = len(out)
			out = append(out, Interface{Index: n.Index, Name: n.Name, Hardware: n.HardwareAddr, Loopback: n.Flags&net.FlagLoopback != 0})
		}
	}
	answer, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		of := (*syscall.IfAddrmsg)(unsafe.Pointer(&m.Data[0]))
		n, ok := at[int(of.Index)]
		if !ok || of.Flags&duplicate != 0 {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return nil, err
		}
		if ip := addrOf(attrs); ip.IsValid() {
			list := &out[n].Addrs
			if of.Flags&tentative != 0 {
				list = &out[n].Checking
			}
			*list = append(*list, netip.PrefixFrom(ip, int(of.Prefixlen)))
		}
	}
	return out, nil
}

// addrOf returns the address of a message: IFA_LOCAL, else IFA_ADDRESS, which is the peer's on a
// point-to-point link.
func addrOf(attrs []syscall.NetlinkRouteAttr) (ip netip.Addr) {
	for _, a := range attrs {
		if v, ok := netip.AddrFromSlice(a.Value); ok && (a.Attr.Type == syscall.IFA_LOCAL || a.Attr.Type == syscall.IFA_ADDRESS && !ip.IsValid()) {
			ip = v
		}
	}
	return ip
}

// zoneIndex returns the index of a zone, which is a name or a number; 0 if there is none.
func zoneIndex(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if n, err := net.InterfaceByName(zone); err == nil {
		return uint32(n.Index)
	}
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// zoneName is the reverse of zoneIndex.
func zoneName(index uint32) string {
	if n, err := net.InterfaceByIndex(int(index)); err == nil {
		return n.Name
	}
	return strconv.FormatUint(uint64(index), 10)
}
