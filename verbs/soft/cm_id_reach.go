package soft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// An identifier of a device with LinkPeers reaches a listener of its own process by the fabric, and any
// other by UDP. Who is there is decided when the address is resolved: listeners are announced at the
// fabric.

// peers returns the provider's device with LinkPeers, nil if there is none.
func (p *Provider) peers() *device {
	for _, d := range p.plugged() {
		if d.cfg.Link == LinkPeers {
			return d
		}
	}
	return nil
}

// deviceOf returns the device that has an address: the one at that address, or the one with LinkPeers,
// which has all of the machine. nil when there is none.
func (p *Provider) deviceOf(a netip.Addr) *device {
	d := p.deviceAt(a)
	if d == nil && here(a) {
		d = p.peers()
	}
	return d
}

// here reports whether an address belongs to this machine.
func here(a netip.Addr) bool {
	if a = a.Unmap().WithZone(""); a.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, have := range all {
		if p, err := netip.ParsePrefix(have.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// hasGID reports whether a GID is an address of this machine, as the device with LinkPeers knows them. It
// makes no system calls.
func (p *Provider) hasGID(g verbs.GID) bool {
	d := p.peers()
	return g.Addr().IsLoopback() || d != nil && d.gids.has(g)
}

// maxPortTries bounds how often a free port of the system is tried that an identifier of this process
// holds.
const maxPortTries = 16

// hears returns the device on whose socket a listener at an address hears other processes; nil if there is
// none.
func (id *cmID) hears(addr netip.Addr) *device {
	if anywhere(addr) {
		return id.p.peers()
	}
	if d := id.p.deviceOf(addr); d != nil && d.cfg.Link == LinkPeers {
		return d
	}
	return nil
}

// openSocket opens the socket of a listener that is restricted to an IP version; 0: to none. The caller holds the
// device.
func (d *device) openSocket(at netip.AddrPort, only uint8) (*roce.End, error) {
	end, err := d.link.Load().Listen(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), only == 6)
	if err != nil {
		errno := syscall.EINVAL
		_ = errors.As(err, &errno) // stays EINVAL if it has none
		return nil, withErrno(errno, "%w", err)
	}
	return end, nil
}

// bindSocket is bind, and opens the socket on which a listener hears other processes. Of a port that is shared
// Listen opens it. The caller holds api.
func (id *cmID) bindSocket(local netip.AddrPort) error {
	addr := local.Addr()
	d := id.hears(addr)
	if d == nil {
		return id.bind(local)
	}
	if !addr.IsValid() {
		addr = netip.IPv6Unspecified()
	}
	if err := notLinkLocal(addr); err != nil {
		return err
	}
	if id.reuse {
		return id.bind(netip.AddrPortFrom(addr, local.Port()))
	}
	if err := id.hold(d); err != nil {
		return err
	}
	var err error
	for range maxPortTries {
		var end *roce.End
		if end, err = d.openSocket(netip.AddrPortFrom(addr, local.Port()), id.family.of(addr)); err != nil {
			break
		}
		if err = id.bind(netip.AddrPortFrom(addr, end.Port())); err == nil {
			id.sock = end
			return nil
		}
		end.Close()
		if local.Port() != 0 {
			break
		}
	}
	id.release(d)
	return err
}

// resolve finds the way from d to dst, the largest path MTU of it, and this end's address. The caller holds api.
func (id *cmID) resolve(d *device, dst netip.AddrPort) (path wire.Path, local netip.Addr, mtu verbs.MTU, err error) {
	path, local, mtu = wire.To(verbs.GIDFromAddr(dst.Addr())), d.cfg.Addr.Unmap(), d.cfg.MTU
	if d.cfg.Link != LinkPeers {
		return path, local, mtu, nil
	}
	if gid, ok := id.p.inProcess(d, uint16(id.ps), dst); ok {
		return wire.To(gid), local, mtu, nil
	}
	if err = notLinkLocal(dst.Addr()); err != nil {
		return path, local, mtu, err
	}
	if local, mtu, err = roce.Route(dst); err != nil {
		return path, local, mtu, withErrno(syscall.ENETUNREACH, "%w", err)
	}
	// A loopback address, the device's own among them, is no source for another machine.
	if bound := id.localAddr().Addr(); !anywhere(bound) && bound.Is4() == dst.Addr().Unmap().Is4() && bound.IsLoopback() == dst.Addr().IsLoopback() {
		local = bound
	}
	if !d.gids.has(verbs.GIDFromAddr(local)) { // a new address
		d.findGIDs()
	}
	end, err := d.dialEnd()
	if err != nil {
		return path, local, mtu, withErrno(syscall.EADDRNOTAVAIL, "%w", err)
	}
	return end.Path(local, dst), local, min(mtu, d.cfg.MTU), nil
}

// spaceLID is the port space of the LIDs of devices in this process, in the fabric's list of services.
const spaceLID = 0

// notLinkLocal refuses the link-local addresses of IPv6 between processes: paths name both ends by GIDs, which have no
// room for the network interface.
func notLinkLocal(a netip.Addr) error {
	if !a.Is6() || !a.IsLinkLocalUnicast() {
		return nil
	}
	return withErrno(syscall.EAFNOSUPPORT, "%w: the software RNIC has no link-local addresses between processes (%v): use another address of the same interface", verbs.ErrInvalid, a)
}

// dialEnd returns the socket of dialed connections, which it opens if necessary. Its port is the device's
// LID.
func (d *device) dialEnd() (*roce.End, error) {
	if e := d.dialer.Load(); e != nil {
		return e, nil
	}
	l := d.link.Load()
	if l == nil || d.cfg.Link != LinkPeers {
		return nil, withErrno(syscall.ENODEV, "%w: %s reaches no other process", verbs.ErrInvalid, d.cfg.Name)
	}
	e, err := l.Dial()
	if err == nil && d.dialer.CompareAndSwap(nil, e) {
		d.withdrawLID = d.provider.fab.Announce(spaceLID, e.Port(), fabric.Service{Addr: d.cfg.Addr.Unmap(), GID: d.gid})
	}
	return e, err
}

// pathOf returns the path to the address of a queue pair's peer or of an address handle. With a LID it is
// between processes, unless it is the LID of a device of this process and the address is the machine's.
// Within a process packets come from the device's own address, whatever SGIDIndex is.
func (d *device) pathOf(a *verbs.AHAttr) wire.Path {
	if a.DLID == 0 {
		return wire.To(a.DGID)
	}
	for _, s := range d.provider.fab.Services(spaceLID, a.DLID) {
		if s.GID == a.DGID || d.provider.hasGID(a.DGID) {
			return wire.To(s.GID)
		}
	}
	e, err := d.dialEnd()
	if err != nil {
		return wire.To(a.DGID) // there is no way: packets are lost
	}
	return e.Path(d.gids.at(int(a.SGIDIndex)).Addr(), netip.AddrPortFrom(a.DGID.Addr(), a.DLID))
}

// checkSource refuses an address to send from that the port does not have, or that has another family than that of
// a peer in another process.
func (d *device) checkSource(a *verbs.AHAttr) error {
	own, peer := d.gids.at(int(a.SGIDIndex)), a.DGID.Addr()
	if own == (verbs.GID{}) {
		return fmt.Errorf("%w: the address table has no entry %d (SGIDIndex)", verbs.ErrInvalid, a.SGIDIndex)
	}
	p := d.pathOf(a)
	if !p.Far() {
		return nil
	}
	if err := notLinkLocal(peer); err != nil {
		return err
	}
	if own.Addr().Is4() != peer.Is4() {
		return fmt.Errorf("%w: entry %d of the address table, %v (SGIDIndex), does not reach %v", verbs.ErrInvalid, a.SGIDIndex, own, peer)
	}
	return nil
}

// inProcess returns the port of the fabric that dst names, if it is in this process: one with a listener
// there, or another device's.
func (p *Provider) inProcess(d *device, space uint16, dst netip.AddrPort) (verbs.GID, bool) {
	services := p.fab.Services(space, dst.Port())
	addr := dst.Addr().Unmap()
	for _, s := range services {
		if s.Addr == addr {
			return s.GID, true
		}
	}
	for _, s := range services {
		if s.Addr.IsUnspecified() && here(addr) {
			return s.GID, true
		}
	}
	gid := verbs.GIDFromAddr(addr)
	return gid, gid != d.gid && p.fab.Has(gid)
}

// farMTU returns the largest path MTU that this end's route to another process carries, up to the device's.
func (d *device) farMTU(p wire.Path) verbs.MTU {
	_, mtu, err := roce.Route(netip.AddrPortFrom(p.Peer.Addr(), p.PeerPort))
	if err != nil {
		mtu = verbs.MTU1024 // nothing will arrive there
	}
	return min(mtu, d.cfg.MTU)
}

// Link names the link to the peer: "process", "peers" or "roce". Any goroutine; it does not block.
func (id *cmID) Link() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.path.Far():
		return "peers"
	case id.p.fab.Has(id.path.Peer):
		return "process"
	}
	return "roce"
}

// announce records that the identifier listens on d. The result undoes it.
func (id *cmID) announce(d *device) (withdraw func()) {
	local := id.localAddr()
	at := []netip.Addr{local.Addr()}
	if local.Addr().IsUnspecified() {
		at[0] = d.cfg.Addr.Unmap()
		if d.cfg.Link == LinkPeers {
			at = append(at, local.Addr())
		}
	}
	var all []func()
	for _, a := range at {
		all = append(all, id.p.fab.Announce(uint16(id.ps), local.Port(), fabric.Service{Addr: a, GID: d.gid}))
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}
