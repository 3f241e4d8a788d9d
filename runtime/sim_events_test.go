package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// The kinds of disturbances.
const (
	eventCalm = iota
	eventMild
	eventSlow
	eventDouble
	eventHeavy
	eventPartition
	eventHeal
	eventKill
	eventClose
	eventAbort
	eventVanish
	eventHangUp
	eventRemove
	eventPortDown
	eventKillUD
	eventOneWay
	eventMute
	eventPeerTimeout
	eventRetries
	simEvents
)

var simEventNames = [simEvents]string{
	"calm link", "mild faults", "slow link", "doubling link", "heavy loss", "partition", "heal", "QP to ERR", "close",
	"abort", "node dies", "listener moves", "device removed", "port down", "UD to ERR",
	"one way cut", "no receives", "peer timeout", "retries used up",
}

// The average number of rounds between two disturbances of a kind. A round starts about 16
// operations.
const (
	everyKill      = 250
	everyClose     = 400
	everyPartition = 900
	everyVanish    = 4000
	everyHangUp    = 2500
	everyRemove    = 3500
	everyPortDown  = 2500
)

// disturb breaks something now and then, and repairs it later.
func (w *simWorld) disturb() {
	r := w.r
	if w.now() >= w.calmAt {
		w.changeLink()
	}
	if w.cut >= 0 && w.now() >= w.healAt {
		w.heal()
	}
	if w.cut < 0 && r.one(everyPartition) {
		w.partition(r.IntN(simNodes), r.span(time.Millisecond, 1500*time.Millisecond))
	}
	if r.one(everyKill) {
		if e := w.anyEnd(); e != nil && e.c.Err() == nil {
			w.events[eventKill]++
			e.p.excuse("its queue pair was forced to ERR")
			if err := e.c.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil {
				w.fail("to ERR: %v", err)
			}
			// Receives are flushed, and sends of the connection's own: no message to the peer
			// arrives any more.
			if e.flushedAt == 0 {
				e.flushedAt = w.now()
			}
		}
	}
	if r.one(everyClose) {
		if e := w.anyEnd(); e != nil && !e.closing {
			hard := r.one(2)
			if w.events[eventClose]++; hard {
				w.events[eventAbort]++
			}
			e.close(hard)
		}
	}
	if r.one(everyHangUp) {
		if n := w.nodes[r.IntN(simNodes)]; n.up() {
			w.events[eventHangUp]++
			for _, p := range w.pairs {
				if p.nodes[1] == n && p.ends[1] == nil {
					p.excuse("its listener was closed")
				}
			}
			n.hangUp(r.IntN(simListeners))
		}
	}
	if r.one(everyVanish) {
		w.vanish(w.nodes[r.IntN(simNodes)])
	}
	if r.one(everyRemove) {
		w.remove(w.nodes[r.IntN(simNodes)])
	}
	if r.one(everyPortDown) {
		w.unplug(w.nodes[r.IntN(simNodes)], r.span(time.Millisecond, 1500*time.Millisecond))
	}
	w.losePeers()
	for _, n := range w.nodes {
		if n.portAt != 0 && w.now() >= n.portAt {
			n.plug()
		}
		if n.stopping && n.finish() {
			if !n.hasEnds() {
				n.close()
				n.stopping, n.reopenAt = false, w.now()+r.span(0, time.Second)
			}
		}
	}
}

// changeLink gives every link another script for a while. Random reordering delays packets one by
// one: go-back-N makes progress with a few percent out of order; if all are, retries are used up,
// which is not a defect.
func (w *simWorld) changeLink() {
	r := w.r
	w.calmAt = w.now() + r.span(time.Millisecond, 400*time.Millisecond)
	w.heavy = false
	var l fabric.Link
	switch r.IntN(12) {
	case 0, 1:
		w.events[eventCalm]++
	case 2, 3, 4, 5, 6:
		w.events[eventMild]++
		l = fabric.Link{Loss: 0.03 * r.Float64(), Dup: 0.05 * r.Float64(), Reorder: 0.04 * r.Float64()}
	case 7, 8:
		w.events[eventSlow]++
		l = fabric.Link{Loss: 0.01 * r.Float64(), Delay: r.span(0, 2*time.Millisecond)}
	case 9, 10:
		w.events[eventDouble]++
		l = fabric.Link{Dup: 0.5, Reorder: 0.02, ReorderBy: 100 * time.Microsecond}
	default:
		w.events[eventHeavy]++
		w.heavy = true
		l = fabric.Link{Loss: 0.2 + 0.3*r.Float64(), Dup: 0.1, Reorder: 0.3, Jitter: 50 * time.Microsecond}
		w.calmAt = w.now() + r.span(time.Millisecond, 150*time.Millisecond)
		for _, p := range w.pairs {
			p.excuse("heavy loss")
		}
	}
	w.fab.SetAll(l)
	w.holdCut()
}

// partition cuts one node off from the others.
func (w *simWorld) partition(i int, d time.Duration) {
	w.events[eventPartition]++
	w.cut, w.healAt = i, w.now()+d
	var rest []verbs.GID
	for _, n := range w.nodes {
		if n.i != i {
			rest = append(rest, n.gid)
		}
	}
	w.fab.Partition([]verbs.GID{w.nodes[i].gid}, rest)
	for _, p := range w.pairs {
		if p.nodes[0].i == i || p.nodes[1].i == i {
			p.excuse("partition")
		}
	}
}

func (w *simWorld) heal() {
	w.mendOneWay()
	for _, n := range w.nodes {
		if n.portAt != 0 {
			n.plug()
		}
	}
	if w.cut >= 0 {
		w.events[eventHeal]++
		w.cut = -1
		w.fab.Heal()
	}
}

// vanish makes a node die silently: it is cut off, and then ends everything. It comes back later,
// with no state left.
func (w *simWorld) vanish(n *simNode) {
	if !n.up() || w.cut >= 0 {
		return
	}
	w.events[eventVanish]++
	w.partition(n.i, 3*time.Second)
	n.stopping = true
	for _, p := range w.pairs {
		for i, e := range p.ends {
			if p.nodes[i] == n && e != nil && !e.closing {
				e.close(true)
			}
		}
	}
}

// hasEnds reports whether connections of the node have not ended yet.
func (n *simNode) hasEnds() bool {
	for _, p := range n.w.pairs {
		for i, e := range p.ends {
			if p.nodes[i] == n && (e == nil && p.dialing && i == 0 || e != nil && !e.gone) {
				return true
			}
		}
	}
	return false
}

// anyEnd returns a random established end, or nil if chance finds none.
func (w *simWorld) anyEnd() *simEnd {
	if len(w.pairs) == 0 {
		return nil
	}
	p := w.pairs[w.r.IntN(len(w.pairs))]
	e := p.ends[w.r.IntN(2)]
	if e == nil || e.gone || p.muted() { // the test observes how a muted one ends
		return nil
	}
	return e
}

// remove removes a node's device while it is in use. Its connections fail with their operations;
// its peers get no answers. When all is closed, a new device takes its place.
func (w *simWorld) remove(n *simNode) {
	if !n.up() || n.portAt != 0 {
		return
	}
	w.events[eventRemove]++
	if err := w.prov.Remove(n.name); err != nil {
		w.fail("removing the device of %s: %v", n.name, err)
	}
	n.removed, n.stopping = true, true
	for _, p := range w.pairs {
		for i, e := range p.ends {
			if p.nodes[i] == n {
				p.excuse("a device was removed")
				if e != nil {
					e.cutOff = true
				}
			}
		}
	}
}

// unplug takes a node's port down for a while: nothing fails by itself, but retries may be used up.
func (w *simWorld) unplug(n *simNode, d time.Duration) {
	if !n.up() || n.portAt != 0 {
		return
	}
	w.events[eventPortDown]++
	if err := w.prov.SetPort(n.name, false); err != nil {
		w.fail("taking the port of %s down: %v", n.name, err)
	}
	n.portAt = w.now() + d
	for _, p := range w.pairs {
		if p.nodes[0] == n || p.nodes[1] == n {
			p.excuse("a port was down")
		}
	}
}

// plug brings the port up again.
func (n *simNode) plug() {
	n.portAt = 0
	if err := n.w.prov.SetPort(n.name, true); err != nil {
		n.w.fail("bringing the port of %s up: %v", n.name, err)
	}
}

// Peers may be lost for longer than any bound: through a link that is cut in one direction, or a
// raw peer that posts no receives. Every send ends within the bound, counted from the previous end
// of a send of its queue.

// simPeerTimeout is more than 4 times what the simulation's queue pairs take for their retries
// (2.15 s), so that it is the bound. simLooks is the longest time without a check (run, rest).
const (
	simPeerTimeout = 2500 * time.Millisecond
	simLooks       = time.Second
)

// The average number of rounds between two.
const (
	everyOneWay = 1500
	everyMute   = 200
)

// simOneWay is a link that is cut in one direction.
type simOneWay struct {
	from, to *simNode
	until    time.Duration
}

// losePeers cuts links and mutes peers now and then, and repairs them later.
func (w *simWorld) losePeers() {
	r := w.r
	if w.oneWay != nil && w.now() >= w.oneWay.until {
		w.mendOneWay()
	}
	if w.oneWay == nil && r.one(everyOneWay) {
		i := r.IntN(simNodes)
		w.cutOneWay(w.nodes[i], w.nodes[(i+r.between(1, simNodes-1))%simNodes], r.span(time.Millisecond, 2*simPeerTimeout))
	}
	if r.one(everyMute) {
		if e := w.anyEnd(); e != nil && e.p.raw && !e.shares() && e.c.Err() == nil {
			e.mute()
		}
	}
}

func (w *simWorld) cutOneWay(from, to *simNode, d time.Duration) {
	w.events[eventOneWay]++
	w.oneWay = &simOneWay{from, to, w.now() + d}
	w.holdCut()
	for _, p := range w.pairs {
		if w.oneWay.meets(p) {
			p.excuse("cut in one direction")
		}
	}
}

// meets reports whether the pair uses the link.
func (c *simOneWay) meets(p *simPair) bool {
	return c != nil && (p.nodes == [2]*simNode{c.from, c.to} || p.nodes == [2]*simNode{c.to, c.from})
}

// holdCut keeps the link cut after all links got another script.
func (w *simWorld) holdCut() {
	if c := w.oneWay; c != nil {
		w.fab.SetLink(c.from.gid, c.to.gid, fabric.Link{Down: true})
	}
}

func (w *simWorld) mendOneWay() {
	if c := w.oneWay; c != nil {
		w.oneWay = nil
		w.fab.SetLink(c.from.gid, c.to.gid, fabric.Link{})
	}
}

// simMuteBound is the bound of sends to a mute peer: with the usual bound, something else would end
// the connection first.
const simMuteBound = 300 * time.Millisecond

// mute stops the end's posting of receives for a while.
func (e *simEnd) mute() {
	peer := e.p.ends[1-e.side]
	if peer == nil || peer.gone || peer.c.Err() != nil {
		return
	}
	e.w.events[eventMute]++
	e.p.excuse("its peer posts no receives")
	e.muteTo = e.w.now() + 2*simPeerTimeout // nothing else ends the sends that wait for it
	peer.shunned = true
	if err := peer.c.q.SetPeerLimit(reactor.PeerLimit{Bound: simMuteBound, OnTimeout: peer.c.onPeerTimeout}); err != nil {
		e.w.fail("%v", err)
	}
}

// muted reports whether one of the ends posts no receives.
func (p *simPair) muted() bool {
	for _, e := range p.ends {
		if e != nil && p.w.now() < e.muteTo {
			return true
		}
	}
	return false
}

// inTime checks that the oldest send of the end has not been outstanding for too long. before is
// the number of sends before takeInOrder took the settled ones: it shows whether any has ended.
func (e *simEnd) inTime(before int) {
	w := e.w
	if len(e.ops) < before || len(e.ops) == 0 {
		e.movedAt = w.now()
	}
	bound := anEighth(simPeerTimeout)
	if e.shunned {
		bound = anEighth(simMuteBound)
	}
	if len(e.ops) > 0 && w.now() > max(e.movedAt, e.ops[0].from)+bound+simLooks {
		w.fail("%v: end %d: %v has been under way since %v, the bound is %v", e.p, e.side, e.ops[0], e.ops[0].from, bound)
	}
}

// countEnd counts why a connection failed after its peer was lost.
func (w *simWorld) countEnd(err error) {
	var wc *verbs.WCError
	switch {
	case errors.Is(err, ErrPeerTimeout):
		w.events[eventPeerTimeout]++
	case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr:
		w.events[eventRetries]++
	}
}

// simAsks returns a KeepAlive for one of the simulation's connections: some have one, others do
// not.
func (w *simWorld) simAsks() time.Duration {
	if w.r.one(2) {
		return -1
	}
	return w.r.span(100*time.Millisecond, 2*simPeerTimeout)
}
