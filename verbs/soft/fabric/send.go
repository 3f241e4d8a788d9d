package fabric

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Send sends k to k.Dst, which may be the port itself. The packet belongs to
// the fabric afterwards. To an unknown GID it is dropped and counted. In its turn only;
// it does not block.
func (p *Port) Send(k *Packet) {
	r := p.routes[k.Dst]
	if r == nil && !p.closed {
		r = p.knownRoute(k.Dst)
	}
	if r == nil {
		p.mustFill(k)
		p.countTx(k)
		p.dropUnknown(nil, k)
		return
	}
	p.SendTo(r, k)
}

// SendTo is Send along a route of this port; k.Dst is set.
func (p *Port) SendTo(r *Route, k *Packet) {
	p.mustFill(k)
	k.Dst = r.dst
	// One more packet in this turn, and nothing is on the link: what forward does.
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
		// The route may be that of another port at this address by now.
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
	k.Src = p.gid
}

func (p *Port) countTx(k *Packet) {
	p.stats.TxPackets++
	p.stats.TxBytes += uint64(k.HdrLen + k.PayloadLen)
}

// push puts k, which was admitted, among those that go into to's inbox when the turn
// ends, and notes that to is to be turned.
func (p *Port) push(r *Route, to *Port, k *Packet) {
	if r.touched != to {
		if r.touched != nil { // what is there has changed in the middle of the turn
			p.handOver(r)
		}
		r.touched = to
		p.touched = append(p.touched, touch{r, to})
	}
	r.out.add(k)
}

// handOver puts what the turn sent by r into the inbox of r.touched, or drops it
// when others have filled that. At the end of each turn, for every link that it
// sent by; the caller has the token.
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
	if r.waiter.Swap(nil) != nil { // maybe nothing is on the way any more whose end would wake it
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

// settle hands over what the turn sent to one entry of touched, and tells whose
// inbox that is.
func (p *Port) settle(i int) (to *Port) {
	t := &p.touched[i]
	if r := t.route; r != nil && r.touched == t.to {
		p.handOver(r)
	}
	to = t.to
	t.route, t.to = nil, nil
	return to
}

// giveBack puts what the turn returned into its pool. At the end of each turn; the
// caller has the token.
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

// sendScripted sends under a fault script, or under the eyes of a tracer. s
// may be nil.
func (p *Port) sendScripted(r *Route, s *script, k *Packet) {
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
	// Every packet draws the same number of times, whatever comes out, so that
	// changing one probability leaves the other draws where they were.
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

// drawDelay is how long a packet takes. In the sender's turn.
func (r *Route) drawDelay(l *Link) time.Duration {
	d := l.Delay + time.Duration(r.chance()*float64(l.Jitter))
	reordered, by := r.chance() < l.Reorder, r.chance()
	if reordered {
		d += 1 + time.Duration(by*float64(l.ReorderBy)) // 1: never at once
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
		k.makeOwn()
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

// arrive puts a delayed packet into the inbox where its route leads now, and
// tells whose; it drops it when nobody is there.
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

// linkAddrs is the two ends of r, or of k when there is no route.
func linkAddrs(r *Route, k *Packet) (src, dst verbs.GID, ordinal uint64) {
	if r == nil {
		return k.Src, k.Dst, 0
	}
	return r.src, r.dst, r.ordinal
}
