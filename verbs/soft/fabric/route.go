package fabric

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs"
)

type routeKey struct{ src, dst verbs.GID }

// Route is the directed link from one GID to another: where it leads now, its
// fault script, and its randomness. It outlives the ports at its ends, so that
// a port attached again continues the same link. An endpoint keeps the routes of its connections
// and sends by [Port.SendTo], which looks nothing up.
type Route struct {
	src, dst verbs.GID
	// to is the port at dst, nil when there is none. Written by Attach and
	// Detach, read by senders and the pacemaker.
	to atomic.Pointer[Port]
	// script is nil for a perfect link. Written by SetLink, Partition and
	// Heal, read by the sender; what it points to beyond Link is the sender's.
	script atomic.Pointer[script]

	// Of the sender's turn:
	touched *Port // who is noted in the sender's touched list by this route
	ordinal uint64
	rng     rand.PCG
}

// Dst is where the route leads.
func (r *Route) Dst() verbs.GID { return r.dst }

// Reachable tells whether a port is attached at the destination now.
func (r *Route) Reachable() bool { return r.to.Load() != nil }

// Route is the link from this port to dst, which need not be attached yet. In
// its turn only.
func (p *Port) Route(dst verbs.GID) *Route {
	if r := p.routes[dst]; r != nil {
		return r
	}
	f := p.f
	f.mu.Lock()
	r := f.routeLocked(p.gid, dst)
	f.mu.Unlock()
	p.routes[dst] = r
	return r
}

// knownRoute is Route for a destination that exists or was scripted, and nil
// for any other: an endpoint that calls addresses at random grows no table.
func (p *Port) knownRoute(dst verbs.GID) *Route {
	if r := p.routes[dst]; r != nil {
		return r
	}
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.routes[routeKey{p.gid, dst}] == nil && f.attached[dst] == nil {
		return nil
	}
	r := f.routeLocked(p.gid, dst)
	p.routes[dst] = r
	return r
}

// routeLocked finds or makes a route. f.mu is held.
func (f *Fabric) routeLocked(src, dst verbs.GID) *Route {
	key := routeKey{src, dst}
	r := f.routes[key]
	if r == nil {
		r = &Route{src: src, dst: dst}
		// A generator of its own, from the seed and the two addresses: another
		// link, or another order of creation, changes nothing here.
		var addrs [len(src) + len(dst)]byte
		copy(addrs[:], src[:])
		copy(addrs[len(src):], dst[:])
		h := xxhash.Sum64(addrs[:])
		r.rng.Seed(f.cfg.Seed, h)
		r.to.Store(f.attached[dst])
		r.setScript(f.all, f.cutLocked(src, dst))
		f.routes[key] = r
	}
	return r
}

// chance draws a number in [0, 1). In the sender's turn.
func (r *Route) chance() float64 {
	const bits = 53 // of a float64's mantissa
	return float64(r.rng.Uint64()>>(64-bits)) / (1 << bits)
}
