package runtime

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// simPause is how many operations lie between two looks at the whole.
const simPause = 10_000

// settleAll stops everybody for a while on a healthy link. Then all that was
// begun on a connection that is well must complete, all messages arrive, and
// no credit be lost: what would only make a connection slower and slower is
// seen here.
func (w *simWorld) settleAll() {
	w.heal()
	w.fab.SetAll(fabric.Link{})
	w.heavy = false
	var calm []*simPair
	for limit := w.now() + simPatience; ; {
		quiet := true
		calm = calm[:0]
		for _, p := range w.pairs {
			if p.well() { // others come and go meanwhile
				quiet = p.settled() && quiet
				calm = append(calm, p)
			}
		}
		for n := 0; n < 50 && w.turn(); n++ {
		}
		w.collect()
		if quiet {
			break
		}
		if w.now() > limit {
			w.fail("%v of a healthy link, and not all has completed: %s", simPatience, w.left())
		}
		w.advance(10 * time.Millisecond)
	}
	for _, p := range calm {
		p.checkCredits()
	}
	for _, p := range calm {
		for _, e := range p.ends {
			if p.well() && !e.cutOff {
				e.checkRoom()
			}
		}
	}
	w.calmAt = w.now() // another script from here on
}

// well tells whether both ends are there and none has failed or is closing.
func (p *simPair) well() bool {
	for _, e := range p.ends {
		if e == nil || e.gone || e.closing || e.flushedAt != 0 || e.c.Err() != nil || p.muted() {
			return false
		}
	}
	return true
}

// settled tells of a pair that is well whether nothing is under way that should
// complete, and posts what is missing for that.
func (p *simPair) settled() bool {
	done := true
	for _, e := range p.ends {
		e.releaseHeld(true)
		if missing := len(e.in().sent); missing > 0 {
			switch {
			case !p.raw && len(e.wants) == 0:
				e.wants = append(e.wants, e.c.Recv())
				e.w.issued++
			case p.raw && e.shares():
				if s := e.n.srq; s.posted < min(s.due(), simSharedDepth) {
					s.post()
				}
			case p.raw && len(e.recvs) < missing:
				e.postRecv()
			}
			done = false
		}
		done = done && len(e.ops)+len(e.joined) == 0
	}
	return done && p.ends[0].silent() && p.ends[1].silent()
}

// silent tells whether nothing is out, credit updates included.
func (e *simEnd) silent() bool {
	silent := false
	e.c.q.SendsIdle(func() { silent = true }) // at once, or of no interest any more
	return silent && int(e.c.unreturned.Load()) < e.c.tellAt()
}

// checkCredits counts: a credit is with the sender, or the receiver has yet to
// tell that it is free.
func (p *simPair) checkCredits() {
	if p.raw || !p.well() {
		return
	}
	for i, e := range p.ends {
		peer := p.ends[1-i]
		have, owed := e.c.credits.Available(), int(peer.c.unreturned.Load())
		if have+owed != e.c.credits.Cap() {
			p.w.fail("%v: end %d has %d credits and is owed %d, of %d", p, i, have, owed, e.c.credits.Cap())
		}
	}
}

// checkRoom fills the send queue, of which nothing is out: as much is started as it is
// deep, and no more. So a place that was lost, by whichever way of starting, is missed.
func (e *simEnd) checkRoom() {
	depth := e.c.opts.SendDepth
	for k := range depth + 1 {
		p := e.atomicWrite()
		if p == nil { // the peer's memory is gone
			return
		}
		before := len(e.ops)
		e.startBy(wayTryStart, p, Turn{})
		if started := len(e.ops) > before; started != (k < depth) {
			e.w.fail("%v: end %d has nothing out; operation %d is started: %t, in a queue of %d", e.p, e.side, k+1, started, depth)
		}
	}
}
