package fabric

import "github.com/verbena-rdma/verbena/verbs"

// An uplink is the way of one port to the addresses that no port of the fabric has: an adapter's
// socket. It is a port without an address of its own; the packets that its owner sends to such
// addresses come into its inbox, and its endpoint puts packets from the network into the owner's.
//
//	owner's run                  uplink's run
//	Send ──────────► inbox ────► Take ──► network
//	inbox ◄───────────────────── SendTo ◄─ network
//
// So the owner's Kick runs the uplink on the goroutine that posted the request.

// AttachUplink adds an uplink for p, which has none. name is for messages. The endpoint may run from
// now on, even before AttachUplink returns. Detach the uplink before p. Not from within a run.
func (p *Port) AttachUplink(name string, e Endpoint) *Port {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.newPort(uplinkGID(p.gid), name, e)
	u.owner = p
	u.share.Store(shareOf(1))
	p.uplink = u
	for _, r := range f.routes {
		if r.src == p.gid {
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

// uplinkLocked returns the uplink of the port at src, or nil. f.mu is held.
func (f *Fabric) uplinkLocked(src verbs.GID) *Port {
	if p := f.attached[src]; p != nil {
		return p.uplink
	}
	return nil
}
