package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// AIFlags are the flags of an AddrInfo.
type AIFlags uint32

// The flags of an AddrInfo.
const (
	// AIPassive is for a listener: Src is resolved, and not Dst.
	AIPassive AIFlags = 1 << 0 // RAI_PASSIVE
	// AINumericHost permits addresses only, and no names.
	AINumericHost AIFlags = 1 << 1 // RAI_NUMERICHOST
	// AINoRoute resolves no route. GetAddrInfo never does: CreateEndpoint resolves it.
	AINoRoute AIFlags = 1 << 2 // RAI_NOROUTE
	// AIFamily has GetAddrInfo read the node as an address of AddrInfo.Family. It matters for AFIB, which needs
	// AINumericHost, too.
	AIFamily AIFlags = 1 << 3 // RAI_FAMILY
)

// AddrInfo is a way to reach a service, or a local address to listen on.
//
// Implements: struct rdma_addrinfo.
type AddrInfo struct {
	Flags     AIFlags
	Family    AddrFamily      // as a hint: of the results; 0: any but AFIB
	QPType    verbs.QPType    // 0 as a hint: by the port space
	PortSpace verbs.PortSpace // 0 as a hint: by the type of the queue pair, else TCP; IB for XRC
	Src       netip.AddrPort  // as a hint of an active side: the local address to use
	Dst       netip.AddrPort
	SrcIB     verbs.IBAddr // in place of Src, if Family is AFIB
	DstIB     verbs.IBAddr // in place of Dst
	CanonName string       // the name that was resolved
	Connect   []byte       // private data of a Connect without parameters
}

// GetAddrInfo resolves a node (a name or an address; "" for a listener on all addresses) and a service
// (a port, or the name of one) to the ways to reach them, the preferred one first. The argument hints
// may be nil. It waits for the resolver of the system, until ctx ends.
//
// With the flags AIFamily and AINumericHost and the family AFIB the node is a GID, and the results have addresses of
// InfiniBand. Those are not proven on a device.
//
// Implements: rdma_getaddrinfo, rdma_freeaddrinfo.
func GetAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) ([]AddrInfo, error) {
	const op = "rdma_getaddrinfo"
	if ctx == nil {
		return nil, ErrNilContext
	}
	var info AddrInfo
	if hints != nil {
		info = *hints
	}
	if err := info.choose(); err != nil {
		return nil, failure(op, nil, syscall.EINVAL, err)
	}
	port, err := info.port(ctx, service)
	if err != nil {
		return nil, named(op, nil, err)
	}
	ips, err := info.lookup(ctx, node)
	if err != nil {
		return nil, named(op, nil, err)
	}
	var all []AddrInfo
	for _, ip := range ips {
		one := info
		one.set(ip, port)
		one.CanonName = node
		all = append(all, one)
	}
	return all, nil
}

// choose derives the type of the queue pair from the port space, or the port space from the type.
//
// Implements: ucma_set_ep_attr and ucma_convert_to_rai of librdmacm/addrinfo.c.
func (a *AddrInfo) choose() error {
	if a.PortSpace == 0 {
		switch a.PortSpace = verbs.PSTCP; a.QPType {
		case verbs.QPTUD:
			a.PortSpace = verbs.PSUDP
		case verbs.QPTXRCSend, verbs.QPTXRCRecv:
			a.PortSpace = verbs.PSIB
		}
	}
	if a.QPType == 0 {
		a.QPType = a.PortSpace.QPType()
	}
	if a.QPType != a.PortSpace.QPType() && !(a.PortSpace == verbs.PSIB && xrc(a.QPType)) {
		return fmt.Errorf("%w: queue pairs of type %v in port space 0x%04x", verbs.ErrInvalid, a.QPType, uint16(a.PortSpace))
	}
	return nil
}

// xrc reports whether queue pairs of type t are XRC's.
func xrc(t verbs.QPType) bool { return t == verbs.QPTXRCSend || t == verbs.QPTXRCRecv }

func (a *AddrInfo) port(ctx context.Context, service string) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	network := "tcp"
	if a.PortSpace == verbs.PSUDP {
		network = "udp"
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	return uint16(port), err
}

// errNoName is the error of a name where only addresses are permitted, and of an active side without
// a node.
var errNoName = errors.New("not an address")

func (a *AddrInfo) lookup(ctx context.Context, node string) ([]netip.Addr, error) {
	if node == "" {
		switch {
		case a.Flags&AIPassive == 0:
			return nil, fmt.Errorf("%w: the node is missing: %w", verbs.ErrInvalid, errNoName)
		case a.Family == AFInet6 || a.gids():
			return []netip.Addr{netip.IPv6Unspecified()}, nil
		}
		return []netip.Addr{netip.IPv4Unspecified()}, nil
	}
	ip, err := netip.ParseAddr(node)
	if other := a.Family == AFInet && !ip.Is4() || a.Family == AFInet6 && ip.Is4(); err == nil && !other {
		return []netip.Addr{ip}, nil
	}
	if a.Flags&AINumericHost != 0 {
		return nil, fmt.Errorf("%w: %q: %w", verbs.ErrInvalid, node, errNoName)
	}
	network := map[AddrFamily]string{AFInet: "ip4", AFInet6: "ip6"}[a.Family]
	if network == "" {
		network = "ip"
	}
	return net.DefaultResolver.LookupNetIP(ctx, network, node)
}

// endpointTimeout is how long CreateEndpoint waits for the address and for the route.
//
// Implements: the 2 s of rdma_create_ep in librdmacm/cma.c.
const endpointTimeout = 2 * time.Second

// CreateEndpoint makes a synchronous identifier from a result of GetAddrInfo. An active one has its
// address and its route resolved; if attr is not nil, it has a queue pair, so that receives can be
// posted before Connect. A passive one is bound to Src, and GetRequest makes the queue pairs of its
// connections with attr. The protection domain pd may be nil: that of the device. As CreateQP does,
// CreateEndpoint writes the granted capacities to attr. The caller destroys the endpoint. It waits for
// the resolution, or until ctx ends.
//
// Implements: rdma_create_ep.
func (l *Library) CreateEndpoint(ctx context.Context, res *AddrInfo, pd verbs.PD, attr *QPInitAttr) (*ID, error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	if res == nil {
		return nil, failure("rdma_create_ep", nil, syscall.EINVAL, verbs.ErrInvalid)
	}
	id, err := l.createID("rdma_create_ep", nil, nil, res.PortSpace, res.QPType)
	if err != nil {
		return nil, err
	}
	if err := id.prepare(ctx, res, pd, attr); err != nil {
		return nil, errors.Join(err, id.Destroy(background))
	}
	return id, nil
}

func (id *ID) prepare(ctx context.Context, res *AddrInfo, pd verbs.PD, attr *QPInitAttr) error {
	var own *QPInitAttr
	if attr != nil {
		a := *attr
		a.Type = id.typ
		own = &a
	}
	if res.Flags&AIPassive != 0 {
		id.makeQP, id.makePD = own, pd
		if res.Family == AFIB {
			return id.BindIB(res.SrcIB)
		}
		return id.BindAddr(res.Src)
	}
	var err error
	if res.Family == AFIB {
		err = id.ResolveIB(ctx, res.SrcIB, res.DstIB, endpointTimeout)
	} else {
		err = id.ResolveAddr(ctx, res.Src, res.Dst, endpointTimeout)
	}
	if err != nil {
		return err
	}
	if err := id.ResolveRoute(ctx, endpointTimeout); err != nil {
		return err
	}
	id.data = res.Connect
	if attr == nil {
		return nil
	}
	err = id.CreateQP(pd, own)
	attr.Cap = own.Cap
	return err
}
