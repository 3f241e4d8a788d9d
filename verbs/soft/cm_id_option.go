package soft

import (
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// SetAckTimeout sets the local ACK timeout of this end. The minimum is code 15, 134 ms. It does not
// block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_ACK_TIMEOUT.
func (id *cmID) SetAckTimeout(code uint8) error {
	const op = "rdma_set_option"
	id.api.Lock()
	defer id.api.Unlock()
	if _, _, closed := id.look(); closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if id.datagrams() || !verbs.AckTimeoutCode(code) {
		return id.refuse(op, "code %d of an ACK timeout in port space %v", code, id.ps)
	}
	id.timeout = code
	return nil
}

// SetTOS sets the type of service of the packets of a connection that this end asks for. The request carries it,
// and the other end sends with it, too. It does not block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_TOS.
func (id *cmID) SetTOS(tos uint8) error {
	const op = "rdma_set_option"
	id.api.Lock()
	defer id.api.Unlock()
	if _, _, closed := id.look(); closed {
		return opError(op, id.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	id.tos = tos
	return nil
}

// SetReuseAddr has Bind share a port with other identifiers that reuse addresses too. Listen ends the sharing: then
// the port must have no other holder. ErrInvalid after Bind. It does not block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_REUSEADDR.
func (id *cmID) SetReuseAddr(reuse bool) error {
	return id.beforeBind(func() { id.reuse = reuse })
}

// SetAFOnly restricts a listener at an unspecified address to requests of that address's family. The default is true
// for IPv4 and false for IPv6. ErrInvalid after Bind. It does not block.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_AFONLY.
func (id *cmID) SetAFOnly(only bool) error {
	return id.beforeBind(func() { id.family = family{only: only, set: true} })
}

// beforeBind sets an option of an identifier that is not bound.
func (id *cmID) beforeBind(set func()) error {
	id.api.Lock()
	defer id.api.Unlock()
	err := id.inState("rdma_set_option", idIdle)
	if err == nil {
		set()
	}
	return err
}

// family is what SetAFOnly has set.
type family struct{ only, set bool }

// of returns the IP version that an identifier at an address is restricted to; 0 for none. Without an address it is
// at those of both.
//
// Implements: the default of rdma_bind_addr (kernel cma.c).
func (f family) of(a netip.Addr) uint8 {
	switch {
	case !a.IsValid() || f.set && !f.only:
		return 0
	case a.Unmap().Is4():
		return 4
	case f.only:
		return 6
	}
	return 0
}

// stopSharing makes the identifier the only holder of its port, before it listens, and opens the socket that Bind did
// not. The caller holds api.
//
// Implements: the check of rdma_listen (kernel cma.c).
func (id *cmID) stopSharing() (err error) {
	if err := id.ports().claim(id, id.port); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			id.ports().share(id, id.port)
		}
	}()
	local := id.localAddr()
	if d := id.hears(local.Addr()); d != nil {
		if err := id.hold(d); err != nil {
			return err
		}
		end, err := d.openSocket(local, id.only)
		if err != nil {
			id.release(d)
			return err
		}
		id.sock = end
	}
	id.reuse = false
	return nil
}
