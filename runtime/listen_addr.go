package runtime

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// portTries is how many ports are tried until one is free at all addresses of the device.
const portTries = 16

// listening is what a Listener or a PacketConn listens with: an identifier for each address, all at one
// port. Holder only.
type listening struct {
	sh      *shard
	target  cmTarget
	space   verbs.PortSpace
	backlog int
	tos     uint8 // iWARP gives it to the accepted connections; 0: the device's
	port    uint8 // of the device; addresses of other ports are left out; 0: any
	all     bool  // at all addresses of the device: follow changes ids
	ids     map[netip.Addr]verbs.CMID
}

// tryPorts calls try. If no port was given and the one that was chosen is in use at one of the addresses,
// tryPorts calls undo, and tries another port.
func tryPorts(port uint16, try func() error, undo func()) (err error) {
	for range portTries {
		if err = try(); err == nil {
			return nil
		}
		undo()
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// start listens at all the addresses, and returns that of the first identifier. Port 0 is the port that this
// one gets. Those are left out that an interface has lost meanwhile, or does not have yet. If none is left, start
// returns the error of the last one.
func (l *listening) start(ips []netip.Addr, port uint16) (first netip.AddrPort, err error) {
	for _, ip := range ips {
		at, lerr := l.add(netip.AddrPortFrom(ip, port))
		switch {
		case lerr == nil && !first.IsValid():
			first, port = at, at.Port()
		case lerr == nil:
		case elsewhere(lerr):
			err = lerr
		default:
			return first, lerr
		}
	}
	if first.IsValid() {
		return first, nil
	}
	return first, err
}

// add creates and binds an identifier, and starts to listen.
func (l *listening) add(at netip.AddrPort) (netip.AddrPort, error) {
	id, err := l.sh.cm.CreateID(l.space, 0)
	if err != nil {
		return at, err
	}
	if l.tos != 0 {
		err = id.SetTOS(l.tos)
	}
	if err == nil {
		err = id.Bind(at)
	}
	if err == nil && l.port != 0 && id.Port() != l.port {
		err = syscall.EADDRNOTAVAIL
	}
	if err == nil {
		err = id.Listen(l.backlog)
	}
	if err != nil {
		l.sh.closeID(id, nil)
		return at, err
	}
	l.ids[at.Addr()] = id
	l.sh.targets[id] = l.target
	return id.LocalAddr(), nil
}

// leave ends listening at an address.
func (l *listening) leave(ip netip.Addr) {
	l.sh.closeID(l.ids[ip], nil)
	delete(l.ids, ip)
}

// leaveAll ends listening at all addresses.
func (l *listening) leaveAll() {
	for ip := range l.ids {
		l.leave(ip)
	}
}

// follow listens at the given addresses and no others, if l listens at all of the device. An address at
// which it cannot listen is tried again at the next change.
func (l *listening) follow(ips []netip.Addr, port uint16) {
	if !l.all {
		return
	}
	for ip := range l.ids {
		if !slices.Contains(ips, ip) {
			l.leave(ip)
		}
	}
	for _, ip := range ips {
		if l.ids[ip] == nil {
			_, _ = l.add(netip.AddrPortFrom(ip, port))
		}
	}
}

// close ends listening at all addresses, and calls done when the identifiers are closed. It is called once,
// after the last call of follow.
func (l *listening) close(done func(error)) {
	left, err := len(l.ids), error(nil)
	if left == 0 {
		done(nil)
		return
	}
	for _, id := range l.ids {
		l.sh.closeID(id, func(cerr error) {
			err = errors.Join(err, cerr)
			if left--; left == 0 {
				done(err)
			}
		})
	}
}

// listen starts to listen at one port of all the addresses. Holder only.
func (l *Listener) listen(ips []netip.Addr, port uint16) error {
	if l.cause != nil { // Runtime.Close has already stopped the listener
		return l.cause
	}
	return tryPorts(port, func() (err error) {
		l.addr, err = l.listening.start(ips, port)
		return err
	}, l.listening.leaveAll)
}

// follow makes the listener listen at the addresses that the device has now. Holder only.
func (l *Listener) follow(ips []netip.Addr) {
	if l.cause == nil {
		l.listening.follow(ips, l.addr.Port())
	}
}
