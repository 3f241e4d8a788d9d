package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// A pool takes receives back from connections that are idle. The holder looks at the connections with a
// large window once every recallEvery:
//
//	                no message since the last look
//	large window ──────────────────────────────────> Recall sent ──Return──> smaller window
//	    ^                                                  │
//	    └──────────── a message has arrived ───────────────┤
//	                                                       │ recallBound, and the pool is short
//	                                                       └──────> the connection fails
//
// Recall and Return are sent like messages, with a credit each, so they need no receives of their own. The
// peer gives up all credits that it has not used, and then gets one for the Return.

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
	seen    uint64 // Conn.arrivals at the last look
	asked   bool   // a Recall was sent and not answered, and no message has arrived since
	ignored int    // how many looks ago
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

// recall makes the window smaller if the connection is idle. short reports whether the pool could not
// give a connection the receives that it wants. Holder only.
func (c *Conn) recall(short bool) {
	r := &c.recalls
	if r.seen != c.arrivals {
		*r = recalls{seen: c.arrivals}
		return
	}
	peers, spare := c.ledger.granted()-uint32(c.arrivals), c.ledger.unreturned()
	if peers == 0 {
		spare-- // the peer gets one
	}
	if n := c.ledger.withdraw(min(spare, int(c.window.Load())-1)); n > 0 {
		c.pool.shrink(c, n)
	}
	c.update(peers == 0)
	switch {
	case r.asked:
		if r.ignored++; short && r.ignored >= recallBound {
			c.fail(fmt.Errorf("%w: it has not given up credits for %v", ErrPeerProtocol, recallBound*recallEvery))
		}
	case peers > 1 && c.creditLine.Load() == 0 && c.credits.take(1) == 1:
		c.credits.wanted() // as in giveUpCredits
		f := c.frame(proto.Recall, 0)
		f.Number = peers
		if r.asked = c.postFrame(f); !r.asked {
			c.creditsBack(1)
		}
	}
}

// giveUpCredits answers a Recall. Holder only.
func (c *Conn) giveUpCredits() {
	c.recallDue = false
	n := c.credits.take(int(c.credits.most))
	if n == 0 {
		return // messages have taken them, and use them soon
	}
	c.credits.wanted() // it is no sign of traffic that they were the last
	f := c.frame(proto.Return, 0)
	f.Number = uint32(n - 1)
	if !c.postFrame(f) {
		c.creditsBack(uint32(n))
		c.recallDue = true // Conn.received calls giveUpCredits again when an earlier frame completes
	}
}

// creditsGivenUp takes the peer's answer to a Recall: it will not use n of its credits. The answer may come
// late, after other messages. Holder only.
func (c *Conn) creditsGivenUp(n uint32) error {
	if c.pool == nil || n > c.ledger.granted()-uint32(c.arrivals) {
		return fmt.Errorf("%w: it gave up %d credits, which it does not have, or which were not recalled", ErrPeerProtocol, n)
	}
	c.arrivals += uint64(n)
	c.recalls = recalls{seen: c.arrivals}
	c.pool.shrink(c, int(n))
	return nil
}
