package fabric

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Send sends k by a path, which may end at the port itself. The packet belongs to the fabric
// afterwards. A packet to an unknown address is dropped and counted. Runner only; it does not block.
func (p *Port) Send(path wire.Path, k *Packet) {
	r := p.routes[path]
	if r == nil && !p.closed {
		r = p.knownRoute(path)
	}
	if r == nil {
		p.mustFill(k)
		k.Dst = path.Peer
		p.countTx(k)
		p.dropUnknown(nil, k)
		return
	}
	p.SendTo(r, k)
}

// SendTo is Send along a route of this port.
func (p *Port) SendTo(r *Route, k *Packet) {
	p.mustFill(k)
	k.Dst = r.path.Peer
	if r.far != nil { // never an uplink's route
		k.Far = r.far
	}
	// The fast path of forward: one more packet of this run, on a link without script or tracer.
	if to := r.touched; to != nil && to == r.to.Load() && r.script.Load() == nil && p.f.tracer.Load() == nil && !p.down {
		if r.take(k.weight()) {
			p.countTx(k)
			r.ordinal++
			r.out.add(k)
			return
		}
	}
	p.forward(r, k)
}

// forward puts a packet on the link r.
func (p *Port) forward(r *Route, k *Packet) {
	p.countTx(k)
	if p.closed {
		// The route may belong to another port at this address by now.
		p.dropUnknown(nil, k)
		return
	}
	r.ordinal++
	if p.down {
		p.dropScripted(r, k, Event{Verdict: DroppedDown})
		return
	}
	if s := r.script.Load(); s != nil || p.f.tracer.Load() != nil {
		p.sendScripted(r, s, k)
		return
	}
	to := r.to.Load()
	if to == nil {
		p.dropUnknown(r, k)
		return
	}
	if !p.admit(r, to, k.weight()) {
		p.dropFull(r, k, Event{})
		return
	}
	p.push(r, to, k)
}

func (p *Port) mustFill(k *Packet) {
	if k.state != filling {
		panic("fabric: Send of a packet that is not from Get, or was sent already")
	}
	k.state = onLink
	if p.owner == nil { // else the packet is from the network
		k.Src = p.gid
	}
}

func (p *Port) countTx(k *Packet) {
	p.stats.TxPackets++
	p.stats.TxBytes += uint64(k.HdrLen + k.PayloadLen)
}

// push adds k, which was admitted, to the packets that go into to's inbox at the end of the run,
// and notes that to is to run.
func (p *Port) push(r *Route, to *Port, k *Packet) {
	if r.touched != to {
		if r.touched != nil { // the port at the destination has changed during the run
			p.handOver(r)
		}
		r.touched = to
		p.touched = append(p.touched, touch{r, to})
	}
	r.out.add(k)
}

// handOver moves the packets that the run sent by r into the inbox of r.touched, or drops them when
// others have filled it. Called at the end of each run, for every link that it sent by; the caller
// has the token.
func (p *Port) handOver(r *Route) {
	c, to := r.out.take(), r.touched
	r.touched = nil
	asked := r.asked
	r.asked = false
	switch to.in.push(c, r, r.admitted-r.handed, asked) {
	case pushedCounted:
		r.handed = r.admitted
		return
	case pushedFree:
		r.admitted = r.handed
		return
	}
	r.admitted = r.handed
	if r.waiter.Swap(nil) != nil { // perhaps no packet is in flight any more that would wake it
		p.Wake()
	}
	for k := c.first; k != nil; {
		next := k.next
		k.next = nil
		p.stats.Overflow++
		k.drop()
		k = next
	}
}

// settle hands over the packets for one entry of touched, and returns its port.
func (p *Port) settle(i int) (to *Port) {
	t := &p.touched[i]
	if r := t.route; r != nil && r.touched == t.to {
		p.handOver(r)
	}
	to = t.to
	t.route, t.to = nil, nil
	return to
}

// giveBack puts the packets that the run returned into their pool. Called at the end of each run;
// the caller has the token.
func (p *Port) giveBack() {
	if p.back.first != nil {
		p.backTo.returned.put(p.back.take())
	}
}

func (p *Port) dropUnknown(r *Route, k *Packet) {
	p.stats.Unknown++
	p.f.trace(p, r, k, Event{Verdict: DroppedUnknown})
	k.drop()
}

// dropFull drops a packet for which the link's share has no room.
func (p *Port) dropFull(r *Route, k *Packet, ev Event) {
	p.stats.Overflow++
	ev.Verdict = DroppedFull
	p.f.trace(p, r, k, ev)
	k.drop()
}

// sendScripted sends under a fault script or a tracer, which may read the payload. s may be nil.
func (p *Port) sendScripted(r *Route, s *script, k *Packet) {
	if k.Foreign {
		if _, ok := mem.Try(k.MakeOwn); !ok {
			clear(k.Payload)
			k.Payload = k.Payload[:0] // a tracer may read it
			p.dropScripted(r, k, Event{Verdict: DroppedLoss})
			return
		}
	}
	if s == nil {
		p.scheduleTraced(r, k, 0, Event{})
		return
	}
	if s.cut || s.link.Down {
		v := DroppedDown
		if s.cut {
			v = DroppedPartition
		}
		p.dropScripted(r, k, Event{Verdict: v})
		return
	}
	drop, dup, corrupted, delay := s.apply(k)
	ev := Event{Corrupted: corrupted}
	if corrupted {
		p.stats.Corrupted++
	}
	// Every packet draws the same number of times, whatever the outcome, so that changing one
	// probability leaves the other draws unchanged.
	lost, doubled := r.chance() < s.link.Loss, r.chance() < s.link.Dup
	mine, copys := r.drawDelay(&s.link), r.drawDelay(&s.link)
	switch {
	case drop:
		ev.Verdict = DroppedRule
		p.dropScripted(r, k, ev)
		return
	case lost:
		ev.Verdict = DroppedLoss
		p.dropScripted(r, k, ev)
		return
	}
	var twin *Packet
	if dup || doubled {
		twin = p.Get()
		k.cloneInto(twin)
		twin.state = onLink
		p.stats.Duplicated++
	}
	p.scheduleTraced(r, k, delay+mine, ev)
	if twin != nil {
		ev.Copy = true
		p.scheduleTraced(r, twin, delay+copys, ev)
	}
}

// drawDelay draws the delay of a packet. In the sender's run.
func (r *Route) drawDelay(l *Link) time.Duration {
	d := l.Delay + time.Duration(r.chance()*float64(l.Jitter))
	reordered, by := r.chance() < l.Reorder, r.chance()
	if reordered {
		d += 1 + time.Duration(by*float64(l.ReorderBy)) // 1: never zero
	}
	return d
}

func (p *Port) dropScripted(r *Route, k *Packet, ev Event) {
	p.stats.Dropped++
	p.f.trace(p, r, k, ev)
	k.drop()
}

// scheduleTraced delivers k at once or after delay.
func (p *Port) scheduleTraced(r *Route, k *Packet, delay time.Duration, ev Event) {
	to := r.to.Load()
	if delay > 0 {
		p.stats.Delayed++
		k.MakeOwn()
		w := k.weight()
		if !p.admit(r, to, w) {
			p.dropFull(r, k, ev)
			return
		}
		r.handed += w
		k.route, k.due = r, p.lastNow+int64(delay)
		ev.Verdict, ev.Due = Delayed, time.Duration(k.due)
		p.f.trace(p, r, k, ev)
		p.f.delay.incoming.pushOne(k)
		if !p.f.cfg.Virtual {
			p.f.pace.wake()
		}
		return
	}
	if to == nil {
		p.dropUnknown(r, k)
		return
	}
	if !p.admit(r, to, k.weight()) {
		p.dropFull(r, k, ev)
		return
	}
	ev.Verdict = Delivered
	p.f.trace(p, r, k, ev)
	p.push(r, to, k)
}

// arrive puts a delayed packet into the inbox of its route's current destination, and returns that
// port; without one it drops the packet and returns nil.
func (f *Fabric) arrive(k *Packet) *Port {
	r := k.route
	to := r.to.Load()
	k.held, k.charge = 0, k.weight() // it was admitted when it was sent
	if to != nil && to.in.pushOne(k) != pushedNot {
		return to
	}
	w := r.release(k.weight())
	k.charge, k.route = 0, nil
	k.drop()
	if w != nil {
		w.Wake()
	}
	return nil
}

// linkAddrs returns the two ends of r, or of k when there is no route.
func linkAddrs(r *Route, k *Packet) (src, dst verbs.GID, ordinal uint64) {
	if r == nil {
		return k.Src, k.Dst, 0
	}
	return r.src, r.path.Peer, r.ordinal
}
