package fabric

import (
	"slices"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Group is the ports that receive packets for a multicast GID. Senders keep it, so that it outlives
// its members; without senders and members it is forgotten.
type Group struct {
	gid     verbs.GID
	keepers int // Fabric.Group calls without Ungroup; under the fabric's mutex
	// members is the ports, in the order in which they joined. Written by Join, Leave and Detach
	// under the fabric's mutex (a new slice each time), read by senders.
	members atomic.Pointer[[]*Port]
}

// GID returns the group's address.
func (g *Group) GID() verbs.GID { return g.gid }

// Group returns the group at a multicast GID, which need not have members, and keeps it until
// Ungroup, once for each call. Any goroutine; it takes the fabric's mutex.
func (f *Fabric) Group(gid verbs.GID) *Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groupLocked(gid)
	g.keepers++
	return g
}

// Ungroup ends one Group call; nil is ignored. Any goroutine; it takes the fabric's mutex.
func (f *Fabric) Ungroup(g *Group) {
	if g == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g.keepers--
	f.forgetLocked(g)
}

// forgetLocked forgets a group without members and senders. The fabric's mutex is held.
func (f *Fabric) forgetLocked(g *Group) {
	if g.keepers == 0 && len(*g.members.Load()) == 0 {
		delete(f.groups, g.gid)
	}
}

func (f *Fabric) groupLocked(gid verbs.GID) *Group {
	g := f.groups[gid]
	if g == nil {
		g = &Group{gid: gid}
		g.members.Store(new([]*Port))
		f.groups[gid] = g
	}
	return g
}

// Join makes the port a member of the group at gid; joining again has no effect. Detach leaves all
// groups. Runner only.
func (p *Port) Join(gid verbs.GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	g := p.f.groupLocked(gid)
	if m := *g.members.Load(); !slices.Contains(m, p) {
		m = append(slices.Clone(m), p)
		g.members.Store(&m)
	}
}

// Leave ends the membership, if there is one. Packets in flight still arrive. Runner only.
func (p *Port) Leave(gid verbs.GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if g := p.f.groups[gid]; g != nil {
		p.f.removeLocked(g, p)
	}
}

// removeLocked removes p from g. The fabric's mutex is held.
func (f *Fabric) removeLocked(g *Group, p *Port) {
	if m := *g.members.Load(); slices.Contains(m, p) {
		m = slices.DeleteFunc(slices.Clone(m), func(q *Port) bool { return q == p })
		g.members.Store(&m)
		f.forgetLocked(g)
	}
}

// SendGroup sends k to every member of a group, including the port itself if it is one, and returns
// their number. Each member gets its own packet, with the group's GID as Dst, over the link from
// this port to it: that link's faults apply to that packet alone. All but one carry a copy of the
// payload; each has k's holder, which is told once for each packet, and once for a packet that was
// dropped because the group is empty. The packet belongs to the fabric afterwards. Runner only; it
// does not block.
func (p *Port) SendGroup(g *Group, k *Packet) (n int) {
	p.mustFill(k)
	k.Dst = g.gid
	members := *g.members.Load()
	if len(members) == 0 || p.closed {
		p.countTx(k)
		p.dropUnknown(nil, k)
		return 0
	}
	for _, m := range members[1:] {
		c := p.Get()
		k.cloneInto(c)
		c.Holder, c.state = k.Holder, onLink
		p.forward(p.route(wire.To(m.gid)), c)
	}
	p.forward(p.route(wire.To(members[0].gid)), k)
	return len(members)
}
