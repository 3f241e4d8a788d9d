package fabric

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

type routeKey struct {
	src verbs.GID
	dst wire.Path
}

// Route is the directed link from one port to another, by one path: its destination port, its fault script, and
// its randomness. It outlives the ports at its ends, so that a port attached again continues the
// same link. An endpoint keeps the routes of its connections and sends by [Port.SendTo], which
// needs no lookup.
type Route struct {
	// What each packet needs comes first, in two cache lines.

	path wire.Path
	far  *wire.Path // &path if that has UDP ports, otherwise nil
	// to is the port at the end of path, nil if there is none. Written by Attach and Detach, read by senders
	// and the pacemaker.
	to atomic.Pointer[Port]
	// script is nil for a perfect link. Written by SetLink, Partition and Heal, read by the sender;
	// its state beyond Link belongs to the sender.
	script atomic.Pointer[script]

	// Owned by the sender, in its run:
	touched *Port // the port noted in the sender's touched list by this route
	out     chain // sent in this run, for touched
	ordinal uint64
	flow

	src verbs.GID
	rng rand.PCG // the sender's
}

// Carries reports whether k came by the reverse of the route: from its other end to this one. Runner
// only.
func (r *Route) Carries(k *Packet) bool {
	return k.Far == r.far && k.Src == r.path.Peer || r.carriesFar(k)
}

// carriesFar is Carries for a path with UDP ports, of which the packet has a copy.
func (r *Route) carriesFar(k *Packet) bool { return k.Far != nil && r.far != nil && *k.Far == r.path }

// Far returns the path if it has UDP ports, otherwise nil, also for a nil route. It may not be changed.
func (r *Route) Far() *wire.Path {
	if r == nil {
		return nil
	}
	return r.far
}

// Uplink reports whether packets leave the fabric by this route now. A nil route has none.
func (r *Route) Uplink() bool {
	if r == nil {
		return false
	}
	to := r.to.Load()
	return to != nil && to.owner != nil
}

// Reachable reports whether a port is attached at the destination now.
func (r *Route) Reachable() bool { return r.to.Load() != nil }

// askBit is the lowest bit of Port.progressed.
const askBit = 1

// AskProgress makes the endpoint at the end of r run, and returns a ticket for Progressed. Runner
// of p only.
func (p *Port) AskProgress(r *Route) (ticket uint32) {
	to := r.to.Load()
	if to == nil {
		return 0
	}
	p.touched = append(p.touched, touch{nil, to})
	return to.progressed.Or(askBit) | askBit
}

// Progressed reports whether the endpoint at the end of r has run since AskProgress returned the
// ticket, or is gone. Until then packets sent by r are not lost: the goroutine that runs the
// endpoint does not get a processor. Any goroutine.
func (r *Route) Progressed(ticket uint32) bool {
	to := r.to.Load()
	return to == nil || to.progressed.Load() != ticket
}

// Route returns the link from this port by the path dst, whose end need not be attached yet, and keeps
// it until Unroute, once for each call. Runner only.
func (p *Port) Route(dst wire.Path) *Route {
	r := p.route(dst)
	p.kept[r]++
	return r
}

// Unroute ends one Route call; nil is ignored. Runner only.
func (p *Port) Unroute(r *Route) {
	if r == nil {
		return
	}
	switch n := p.kept[r]; n {
	case 0:
		panic("fabric: Unroute of a route that is not kept")
	case 1:
		delete(p.kept, r)
	default:
		p.kept[r] = n - 1
	}
}

// route is Route without keeping the route.
func (p *Port) route(dst wire.Path) *Route {
	if r := p.routes[dst]; r != nil {
		return r
	}
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.routeLocked(p.gid, dst)
	p.noteLocked(r)
	return r
}

// minSweep is the number of routes of a port below which it does not sweep unused ones.
const minSweep = 64

// noteLocked puts r into the port's table, which it sweeps when that has doubled. f.mu is held.
func (p *Port) noteLocked(r *Route) {
	if len(p.routes) >= p.sweepAt {
		for dst, o := range p.routes {
			if to := o.to.Load(); p.kept[o] == 0 && (to == nil || to == p.uplink) && o.script.Load() == nil {
				delete(p.routes, dst)
				delete(p.f.routes, routeKey{p.gid, dst})
				p.f.linkedLocked(o, -1)
			}
		}
		p.sweepAt = max(minSweep, 2*len(p.routes))
	}
	p.routes[r.path] = r
	p.outShare = shareOf(len(p.routes))
}

// knownRoute is route for a destination that exists, may exist beyond an uplink, or has a script, and
// nil for any other: an endpoint that sends to random addresses grows no table, or one that
// noteLocked sweeps.
func (p *Port) knownRoute(dst wire.Path) *Route {
	if r := p.routes[dst]; r != nil {
		return r
	}
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.routes[routeKey{p.gid, dst}] == nil && f.endLocked(p.gid, &dst) == nil {
		return nil
	}
	r := f.routeLocked(p.gid, dst)
	p.noteLocked(r)
	return r
}

// routeLocked finds or creates a route. f.mu is held.
func (f *Fabric) routeLocked(src verbs.GID, dst wire.Path) *Route {
	key := routeKey{src, dst}
	r := f.routes[key]
	if r == nil {
		r = &Route{src: src, path: dst}
		if dst.Far() {
			r.far = &r.path
		}
		// The route has its own generator, seeded from the seed and the two addresses: other links,
		// or another order of creation, do not change its draws.
		var addrs [len(src) + len(dst.Peer)]byte
		copy(addrs[:], src[:])
		copy(addrs[len(src):], dst.Peer[:])
		h := xxhash.Sum64(addrs[:])
		r.rng.Seed(f.cfg.Seed, h)
		r.to.Store(f.endLocked(src, &dst))
		l := f.all
		if p := f.routes[routeKey{src, wire.To(dst.Peer)}]; p != nil { // SetLink may have scripted it
			l = Link{}
			if s := p.script.Load(); s != nil {
				l = s.link
			}
		}
		r.setScript(l, f.cutLocked(src, dst.Peer))
		f.routes[key] = r
		f.linkedLocked(r, 1)
	}
	return r
}

// chance draws a number in [0, 1). In the sender's run.
func (r *Route) chance() float64 {
	const bits = 53 // of a float64's mantissa
	return float64(r.rng.Uint64()>>(64-bits)) / (1 << bits)
}
