package roce

import (
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// MTU returns the largest path MTU, up to 4096, that the interface with address a carries; 1024, that
// of an Ethernet, if it cannot be found.
func MTU(a netip.Addr) verbs.MTU {
	// As rdma_rxe, except that it reserves 80 bytes for all headers (rxe_hdr.h, RXE_MAX_HDR_LENGTH).
	payload := interfaceMTU(a.Unmap().WithZone("")) - ipv6Len - udpLen - wire.MaxHeader - ICRCLen
	best := verbs.MTU256
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
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
