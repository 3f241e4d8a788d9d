package roce

import (
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// MTU returns the largest path MTU, up to 4096, that the interface with address a carries; 1024, that
// of an Ethernet, if it cannot be found.
func MTU(a netip.Addr) verbs.MTU {
	return mtuWithin(interfaceMTU(a.Unmap().WithZone("")), verbs.MTU4096)
}

// Route returns the address from which this machine sends to another process, and the largest path MTU, up to
// 32768, that the route carries. The system knows the MTU of the first interface; it knows a narrower part
// behind it only if a packet was refused there before. It does not block.
//
// Errors: there is no route.
func Route(to netip.AddrPort) (from netip.Addr, mtu verbs.MTU, err error) {
	from, n, err := udp.Route(to)
	if err != nil {
		return from, 0, err
	}
	if n == 0 { // the system does not report it
		n = interfaceMTU(from)
	}
	return from, mtuWithin(n, verbs.MTU32768), nil
}

// mtuWithin returns the largest path MTU up to most whose packets are no longer than n bytes.
func mtuWithin(n int, most verbs.MTU) verbs.MTU {
	// As rdma_rxe, except that it reserves 80 bytes for all headers (rxe_hdr.h, RXE_MAX_HDR_LENGTH).
	payload := n - ipv6Len - udpLen - wire.MaxHeader - ICRCLen
	best := verbs.MTU256
	for m := verbs.MTU256; m <= most; m++ {
		if int(m.Bytes()) <= payload {
			best = m
		}
	}
	return best
}

// ethernetMTU is the MTU of an interface that cannot be found.
const ethernetMTU = 1500

// interfaceMTU returns the MTU in bytes of the interface with address a.
func interfaceMTU(a netip.Addr) int {
	all, err := net.Interfaces()
	if err != nil {
		return ethernetMTU
	}
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil {
			continue
		}
		for _, have := range addrs {
			p, err := netip.ParsePrefix(have.String())
			if err != nil {
				continue
			}
			if p.Addr() == a || p.Contains(a) && all[i].Flags&net.FlagLoopback != 0 {
				return all[i].MTU // every address of 127.0.0.0/8 belongs to the loopback interface
			}
		}
	}
	return ethernetMTU
}
