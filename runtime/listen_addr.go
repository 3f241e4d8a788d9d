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

// listen starts to listen at one port of all the addresses. Holder only.
func (l *Listener) listen(ips []netip.Addr, port uint16) (err error) {
	if l.cause != nil { // Runtime.Close has already stopped the listener
		return l.cause
	}
	for range portTries {
		if err = l.listenAll(ips, port); err == nil {
			return nil
		}
		for ip := range l.ids {
			l.leave(ip)
		}
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// listenAll listens at all the addresses. Port 0 is the port that the first gets. Those are left out
// that an interface has lost meanwhile, or does not have yet.
func (l *Listener) listenAll(ips []netip.Addr, port uint16) (err error) {
	l.addr = netip.AddrPort{}
	for _, ip := range ips {
		var at netip.AddrPort
		if at, err = l.listenAt(netip.AddrPortFrom(ip, port)); err != nil {
			if l.all && elsewhere(err) {
				continue
			}
			return err
		}
		if !l.addr.IsValid() {
			l.addr, port = at, at.Port()
		}
	}
	if l.addr.IsValid() {
		return nil
	}
	return err
}

// listenAt creates and binds an identifier, and starts to listen.
func (l *Listener) listenAt(at netip.AddrPort) (netip.AddrPort, error) {
	id, err := l.sh.cm.CreateID(verbs.PSTCP, 0)
	if err != nil {
		return at, err
	}
	if l.opts.TOS != 0 { // iWARP gives it to the accepted connections
		err = id.SetTOS(l.opts.TOS)
	}
	if err == nil {
		err = id.Bind(at)
	}
	if err == nil {
		// The device's backlog counts all unanswered requests. At most Options.Backlog of these
		// requests are in l.backlog, and about maxRejections wait to be rejected. The remaining
		// Options.Backlog places are for requests whose events takeCM has not taken yet.
		err = id.Listen(2*l.opts.Backlog + maxRejections)
	}
	if err != nil {
		l.sh.closeID(id, nil)
		return at, err
	}
	l.ids[at.Addr()] = id
	l.sh.targets[id] = l
	return id.LocalAddr(), nil
}

// leave ends listening at an address.
func (l *Listener) leave(ip netip.Addr) {
	l.sh.closeID(l.ids[ip], nil)
	delete(l.ids, ip)
}

// follow makes the listener listen at the given addresses, if it listens at all of the device. An
// address at which it cannot listen is tried again at the next change. Holder only.
func (l *Listener) follow(ips []netip.Addr) {
	if !l.all || l.cause != nil {
		return
	}
	for ip := range l.ids {
		if !slices.Contains(ips, ip) {
			l.leave(ip)
		}
	}
	for _, ip := range ips {
		if l.ids[ip] == nil {
			_, _ = l.listenAt(netip.AddrPortFrom(ip, l.addr.Port()))
		}
	}
}
