package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// A pool takes receives back from connections that are idle, and, while a connection does not get its part of the
// pool, from those above their part. The holder looks at the connections with a large window once every
// recallEvery (windowLook.plan):
//
//	              idle, or above its part and little used
//	large window ─────────────────────────────────────────> Recall sent ──Return──> smaller window
//	    │                                                        │                        ^
//	    │ above its part and used: what is                       │ recallBound, and       │
//	    │ used is not granted again                              v a connection is denied │
//	    │                                                 the connection fails            │
//	    └─────────────────────────────────────────────────────────────────────────────────┘
//
// A Recall uses no credit: each end keeps a receive for it. The next one is sent only after the Return, so that one
// receive is enough. The Return uses one of the credits that the peer gives up. A peer without a credit answers
// with the next one that it gets; it is not failed meanwhile.

const (
	// recallEvery is the time for which a connection is idle before its window shrinks: longer than the
	// pauses between bursts of a program that is busy.
	recallEvery = time.Second
	// recallBound is how many looks a peer may ignore a Recall while other connections need receives.
	// It is long, because a peer may be stopped in a debugger or be busy.
	recallBound = 30
)

// recalls is what a connection keeps about the recall of its peer's credits. Holder only.
type recalls struct {
	seen    uint64 // Conn.messages at the last look
	asked   int    // credits that a Recall has asked for that was not answered; 0 for none
	ignored int    // for how many looks the peer could have answered
}

// startTicks starts the timer of tick. Holder only.
func (p *recvPool) startTicks() {
	if p.timer == nil {
		p.timer = p.sh.r.After(recallEvery, p.tick)
	}
}

// tick looks at the connections with a large window. Holder only.
func (p *recvPool) tick() {
	p.timer = nil
	denied := p.denied
	p.denied = false
	for _, c := range p.ordered() {
		if c.state == connOpen && c.window.Load() > 1 {
			c.recall(denied)
		}
	}
	if p.wide > 0 {
		p.startTicks()
	}
}

// recall makes the window smaller if the connection is idle, or above its part while denied is set: a connection
// does not get its part. Holder only.
func (c *Conn) recall(denied bool) {
	r := &c.recalls
	peers := max(c.peerCredits(), 0)
	p := windowLook{
		window: int(c.window.Load()), part: c.pool.part(), denied: denied, used: int(c.messages() - r.seen),
		unreturned: c.ledger.unreturned(), peers: peers, asked: r.asked > 0,
	}.plan()
	r.seen = c.messages()
	c.ledger.keep.Store(uint32(p.keep))
	if n := c.ledger.withdraw(p.withdraw); n > 0 {
		c.pool.shrink(c, n)
	}
	c.update(peers == 0)
	switch {
	case r.asked > 0 && peers == 0:
		r.ignored = 0
	case r.asked > 0:
		if r.ignored++; denied && r.ignored >= recallBound {
			c.fail(fmt.Errorf("%w: it has not given up credits for %v", ErrPeerProtocol, recallBound*recallEvery))
		}
	case p.recall > 0:
		f := c.frame(proto.Recall, 0)
		f.Number = uint32(p.recall)
		if c.postFrame(f) { // otherwise the next look tries again
			r.asked, r.ignored = p.recall, 0
		}
	}
}

// recalled takes a Recall of n credits. Holder only.
func (c *Conn) recalled(n uint32) error {
	if c.recallOwed > 0 {
		return fmt.Errorf("%w: it has sent a Recall before the answer to the last", ErrPeerProtocol)
	}
	c.recallOwed = n
	c.giveUpCredits()
	return nil
}

// giveUpCredits answers a Recall that is not answered, if there is a credit. Holder only.
func (c *Conn) giveUpCredits() {
	if c.recallOwed == 0 {
		return
	}
	n := min(c.recallOwed, uint32(c.credits.most))
	if c.creditLine.Load() > 0 {
		n = 1 // the others are in use
	}
	n = uint32(c.credits.take(int(n)))
	if n == 0 {
		return // takeCreditsOf calls giveUpCredits again
	}
	c.credits.wanted() // it is no sign of traffic that they were the last
	f := c.frame(proto.Return, 0)
	f.Number = n - 1
	if !c.postFrame(f) {
		c.creditsBack(n)
		return // Conn.received calls giveUpCredits again when an earlier frame completes
	}
	c.recallOwed = 0
}

// creditsGivenUp takes the peer's answer to a Recall: it will not use n of its credits. The answer may come
// late, after other messages. Holder only.
func (c *Conn) creditsGivenUp(n uint32) error {
	r := &c.recalls
	if int64(n) >= int64(r.asked) || int64(n) > int64(c.peerCredits()) {
		return fmt.Errorf("%w: it gave up %d credits, which it does not have, or which were not recalled", ErrPeerProtocol, n)
	}
	r.asked, r.ignored = 0, 0
	c.arrivals += uint64(n)
	c.spent += uint64(n)
	c.ledger.keep.Store(uint32(max(int(c.ledger.keep.Load())-int(n), 0)))
	c.pool.shrink(c, int(n))
	return nil
}
