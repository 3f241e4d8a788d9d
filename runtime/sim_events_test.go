package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// The kinds of events that a run counts. The last two are reasons why connections fail. All others are
// disturbances, or the ends of disturbances.
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
	"calm link", "mild faults", "slow link", "duplicating link", "heavy loss", "partition", "partition healed", "QP to ERR", "close",
	"abort", "node dies", "listener closed", "device removed", "port down", "UD QP to ERR",
	"cut in one direction", "no receives posted", "peer timeout", "retries used up",
}

// The average number of rounds between two disturbances of the same kind. A round is one iteration of
// the loop of simWorld.run.
const (
	everyKill      = 250
	everyClose     = 400
	everyPartition = 900
	everyVanish    = 4000
	everyHangUp    = 2500
	everyRemove    = 3500
	everyPortDown  = 2500
)

// disturb starts disturbances at random. It also ends the disturbances whose time is over.
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
				w.fail("moving a queue pair to ERR: %v", err)
			}
			// From now on no message of this end reaches the peer. After flushedAt is set,
			// simEnd.collect checks that the connection fails soon.
			//
			// A raw connection that has neither shared receives nor outstanding requests fails only
			// after its next operation. The method settle of that operation sets flushedAt. Any other
			// connection must fail soon, so set flushedAt here. (simOp.settle might never set
			// it, because settle is not called for the receives that a managed connection posts.)
			e.killed = true
			if e.flushedAt == 0 && (!e.p.raw || e.shares() || len(e.ops)+len(e.recvs) > 0) {
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

// changeLink gives all links new faults for a while. Except under heavy loss, it reorders only a
// few percent of the packets. If it reordered most packets, go-back-N would make no progress and
// use up its retries, and connections would fail although the tested code is correct.
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

// partition cuts node i off from the others for the time d.
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

// vanish lets a node die without notice to its peers: it cuts the node off, and then aborts the node's
// connections. When these have ended, disturb() closes the node. Up to a second after that, the node
// opens again, without its old state.
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

// hasEnds reports whether the node has a dial in progress, or a connection that has not ended.
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

// anyEnd returns a random end of a random pair. It returns nil if there is no pair, if the chosen end does
// not exist or is gone, or if the pair is muted.
func (w *simWorld) anyEnd() *simEnd {
	if len(w.pairs) == 0 {
		return nil
	}
	p := w.pairs[w.r.IntN(len(w.pairs))]
	e := p.ends[w.r.IntN(2)]
	if e == nil || e.gone || p.muted() { // only the bound simMuteBound may end a muted pair
		return nil
	}
	return e
}

// remove removes a node's device while it is in use. The node's connections and operations fail,
// and its peers get no answers. After simNode.close has closed the node's runtime, it restores the
// device.
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

// unplug takes a node's port down for the time d. A connection fails only if its retries are used up
// in this time.
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

// The following disturbances keep a peer from answering, often for longer than the bound of sends: a
// link is cut in one direction, or a raw peer posts no receives. Every send must end within the
// bound. The bound counts from the time at which the send was accepted, or from the last time at which
// another send of the same queue ended, whichever is later.

// simPeerTimeout is the PeerTimeout of the simulation's connections. The bound of their sends is the
// larger of PeerTimeout and 4 × ACK timeout × (retries + 1) = 4 × 134 ms × 8 = 4.3 s (boundOf). So the
// bound is simPeerTimeout, too. Two checks of the bound are at most simLooks of virtual time apart (see
// simWorld.rest and simWorld.finish).
const (
	simPeerTimeout = 5 * time.Second
	simLooks       = time.Second
)

// The average number of rounds between two of these disturbances.
const (
	everyOneWay = 1500
	everyMute   = 200
)

// simOneWay is a link that is cut in one direction.
type simOneWay struct {
	from, to *simNode
	until    time.Duration // the virtual time at which losePeers mends the link
}

// losePeers cuts a link in one direction at random, and mends it when its time is over. It also
// makes raw peers mute at random: a mute peer posts no receives.
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

// meets() reports whether the cut link connects the nodes of the pair. If c is nil, no link is cut, and
// meets() returns false.
func (c *simOneWay) meets(p *simPair) bool {
	return c != nil && (p.nodes == [2]*simNode{c.from, c.to} || p.nodes == [2]*simNode{c.to, c.from})
}

// holdCut cuts the link of w.oneWay. If w.oneWay is nil, it does nothing. changeLink sets the faults of
// all links, and so mends the cut link. Therefore changeLink calls holdCut at its end.
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

// simMuteBound is the bound of sends to a mute peer. It is short, so that the bound ends the
// connection before another disturbance does.
const simMuteBound = 300 * time.Millisecond

// mute() makes the end post no receives until the virtual time e.muteTo. It also reduces the bound of
// the peer's sends to simMuteBound.
func (e *simEnd) mute() {
	peer := e.p.ends[1-e.side]
	if peer == nil || peer.gone || peer.c.Err() != nil {
		return
	}
	e.w.events[eventMute]++
	e.p.excuse("its peer posts no receives")
	e.muteTo = e.w.now() + 2*simPeerTimeout      // so long that only the bound ends the peer's sends
	peer.shunned, peer.movedAt = true, e.w.now() // the new bound counts from now
	if err := peer.c.q.SetPeerLimit(reactor.PeerLimit{Bound: simMuteBound, OnTimeout: peer.c.onPeerTimeout}); err != nil {
		e.w.fail("%v: SetPeerLimit: %v", e.p, err)
	}
}

// muted() reports whether one of the ends is mute now.
func (p *simPair) muted() bool {
	for _, e := range p.ends {
		if e != nil && p.w.now() < e.muteTo {
			return true
		}
	}
	return false
}

// inTime checks that the oldest send of the end is not outstanding for too long. The argument is the
// length that e.ops had before takeInOrder removed the settled sends. If e.ops is shorter now, a send has
// ended. The watchdog may notice the end of a bound late, by up to an eighth of the bound (anEighth).
func (e *simEnd) inTime(oldLen int) {
	w := e.w
	if len(e.ops) < oldLen || len(e.ops) == 0 {
		e.movedAt = w.now()
	}
	bound := anEighth(simPeerTimeout)
	if e.shunned {
		bound = anEighth(simMuteBound)
	}
	if len(e.ops) > 0 && w.now() > max(e.movedAt, e.ops[0].from)+bound+simLooks {
		w.fail("%v: end %d: at the virtual time %v, %v is outstanding since %v, longer than %v (its bound and an eighth of it)", e.p, e.side, w.now(), e.ops[0], e.ops[0].from, bound)
	}
}

// countEnd counts a connection that failed with err, if the reason was the bound of sends, or that the
// retries were used up.
func (w *simWorld) countEnd(err error) {
	var wc *verbs.WCError
	switch {
	case errors.Is(err, ErrPeerTimeout):
		w.events[eventPeerTimeout]++
	case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr:
		w.events[eventRetries]++
	}
}

// simAsks returns a random KeepAlive option for a connection. For half of the connections it returns
// -1, so that they send no probes.
func (w *simWorld) simAsks() time.Duration {
	if w.r.one(2) {
		return -1
	}
	return w.r.span(100*time.Millisecond, 2*simPeerTimeout)
}
