package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Peers that are lost for longer than anybody waits: a link that is cut in one
// direction, and a raw peer that posts no receives. Every send ends within the
// bound, counted from the last one of its queue that ended.

// simPeerTimeout is more than 4 times what the simulation's queue pairs take for
// their retries (2.15 s), so that it is the bound. simLooks is the longest that nobody
// looks (run, rest).
const (
	simPeerTimeout = 2500 * time.Millisecond
	simLooks       = time.Second
)

// On average this many rounds between two.
const (
	everyOneWay = 1500
	everyMute   = 200
)

// simOneWay is a link that is cut in one direction.
type simOneWay struct {
	from, to *simNode
	until    time.Duration
}

// losePeers cuts links and silences peers now and then, and mends them later.
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

// meets tells whether the pair needs the link.
func (c *simOneWay) meets(p *simPair) bool {
	return c != nil && (p.nodes == [2]*simNode{c.from, c.to} || p.nodes == [2]*simNode{c.to, c.from})
}

// holdCut keeps the link cut when all have got another script.
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

// simMuteBound is the bound of who sends to a mute peer: with the others' something
// else would end the connection first.
const simMuteBound = 300 * time.Millisecond

// mute has the end post no receives for a while.
func (e *simEnd) mute() {
	peer := e.p.ends[1-e.side]
	if peer == nil || peer.gone || peer.c.Err() != nil {
		return
	}
	e.w.events[eventMute]++
	e.p.excuse("its peer posts no receives")
	e.muteTo = e.w.now() + 2*simPeerTimeout // nothing else ends what waits for it
	peer.shunned = true
	if err := peer.c.q.SetLimit(reactor.Limit{Bound: simMuteBound, Late: peer.c.late}); err != nil {
		e.w.fail("%v", err)
	}
}

// muted tells whether one of the ends posts no receives.
func (p *simPair) muted() bool {
	for _, e := range p.ends {
		if e != nil && p.w.now() < e.muteTo {
			return true
		}
	}
	return false
}

// inTime looks whether the oldest send of the end is under way for too long.
// Before takeInOrder has taken what is settled it notes what has ended.
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

// countEnd counts why a connection failed, when a peer was lost.
func (w *simWorld) countEnd(err error) {
	var wc *verbs.WCError
	switch {
	case errors.Is(err, ErrPeerTimeout):
		w.events[eventPeerTimeout]++
	case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr:
		w.events[eventRetries]++
	}
}

// simAsks is a KeepAlive for one of the simulation's connections: some ask,
// others leave it.
func (w *simWorld) simAsks() time.Duration {
	if w.r.one(2) {
		return -1
	}
	return w.r.span(100*time.Millisecond, 2*simPeerTimeout)
}
