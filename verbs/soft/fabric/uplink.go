package fabric

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// An uplink is the way of one port to the addresses that no port of the fabric has: an adapter's
// socket. It is a port without an address of its own; the packets that its owner sends to such
// addresses come into its inbox, and its endpoint puts packets from the network into the owner's.
//
//	owner's run                  uplink's run
//	Send ──────────► inbox ────► Take ──► network
//	inbox ◄───────────────────── SendTo ◄─ network
//
// So the owner's Kick runs the uplink on the goroutine that posted the request.

// AttachUplink adds an uplink for p, which has none. With far it gets the packets on paths with UDP
// ports, otherwise those to addresses of no port. name is for messages. The endpoint may run from
// now on, even before AttachUplink returns. Detach the uplink before p. Not from within a run.
func (p *Port) AttachUplink(name string, far bool, e Endpoint) *Port {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.newPort(uplinkGID(p.gid), name, e)
	u.owner = p
	u.share.Store(shareOf(1))
	u.far, p.uplink = far, u
	for _, r := range f.routes {
		if r.src == p.gid && (r.far != nil) == far {
			r.to.CompareAndSwap(nil, u)
		}
	}
	f.addLocked(u)
	return u
}

// uplinkGID returns the source of an uplink's route to its owner, which is no port's GID: unicast GIDs
// begin with 0x00 (IPv4), 0x20 to 0x3f, or 0xfc to 0xfe, and the complements of these bytes do not.
func uplinkGID(owner verbs.GID) verbs.GID {
	owner[0] = ^owner[0]
	return owner
}

// endLocked returns the port that gets the packets from src by dst: the one at the address, or the
// uplink of src; nil if there is none. f.mu is held.
func (f *Fabric) endLocked(src verbs.GID, dst *wire.Path) *Port {
	if !dst.Far() {
		if to := f.attached[dst.Peer]; to != nil {
			return to
		}
	}
	if p := f.attached[src]; p != nil && p.uplink != nil && p.uplink.far == dst.Far() {
		return p.uplink
	}
	return nil
}
