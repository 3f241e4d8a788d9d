package fabric

import (
	"slices"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Group is the ports that take what is sent to a multicast GID. Senders keep it,
// so that it outlives its members; without either it is forgotten.
type Group struct {
	gid     verbs.GID
	keepers int // who has it from Fabric.Group; under the fabric's mutex
	// members are the ports, in the order in which they joined. Written by Join,
	// Leave and Detach under the fabric's mutex (a new slice each time), read by
	// senders.
	members atomic.Pointer[[]*Port]
}

// GID is the group's address.
func (g *Group) GID() verbs.GID { return g.gid }

// Group is the group at a multicast GID, which need not have members. It is kept
// until Ungroup, once for each call. Any goroutine; it takes the fabric's mutex.
func (f *Fabric) Group(gid verbs.GID) *Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groupLocked(gid)
	g.keepers++
	return g
}

// Ungroup gives back what Group gave; nil is nothing. Any goroutine; it takes
// the fabric's mutex.
func (f *Fabric) Ungroup(g *Group) {
	if g == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g.keepers--
	f.forgetLocked(g)
}

// forgetLocked forgets a group without members that no sender keeps. The
// fabric's mutex is held.
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

// Join makes the port a member of the group at gid; joining twice is once.
// Detach leaves all groups. In its turn only.
func (p *Port) Join(gid verbs.GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	g := p.f.groupLocked(gid)
	if m := *g.members.Load(); !slices.Contains(m, p) {
		m = append(slices.Clone(m), p)
		g.members.Store(&m)
	}
}

// Leave ends the membership, if there is one. Packets on the way still arrive.
// In its turn only.
func (p *Port) Leave(gid verbs.GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if g := p.f.groups[gid]; g != nil {
		p.f.removeLocked(g, p)
	}
}

// removeLocked takes p out of g. The fabric's mutex is held.
func (f *Fabric) removeLocked(g *Group, p *Port) {
	if m := *g.members.Load(); slices.Contains(m, p) {
		m = slices.DeleteFunc(slices.Clone(m), func(q *Port) bool { return q == p })
		g.members.Store(&m)
		f.forgetLocked(g)
	}
}

// SendGroup sends k to every member of a group, the port itself among them if
// it is one, and tells to how many. Each member gets a packet of its own, with
// the group's GID as Dst, over the link from this port to it: that link's
// faults apply to that packet alone. All but one carry a copy of the payload;
// each has k's holder, which is told once for each packet, and for one that
// was dropped because the group is empty. The packet belongs to the fabric
// afterwards. In its turn only; it does not block.
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
		p.forward(p.route(m.gid), c)
	}
	p.forward(p.route(members[0].gid), k)
	return len(members)
}
