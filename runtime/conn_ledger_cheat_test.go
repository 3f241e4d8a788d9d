package runtime

import "testing"

// Rule: a peer that has used credits which a frame was to carry, and which came back because the frame was not posted,
// has sent messages without a credit: the next one is a violation, however many credits there were. (The bug: the
// difference wrapped around, and the peer could send 2^32 messages more.)
func TestCreditsOfAFrameThatWasNotPosted(t *testing.T) {
	for _, used := range []uint32{1, 8, 200} {
		c := &Conn{}
		c.ledger.add(200)
		n := c.ledger.take()
		c.arrivals += uint64(used) // before the frame is posted
		if c.uncovered() != (used == n) {
			t.Errorf("%d of %d granted credits are used: uncovered is %v", used, n, c.uncovered())
		}
		c.ledger.untake(n)
		if got := c.peerCredits(); got != -int(used) || !c.uncovered() {
			t.Errorf("after %d credits of %d that the peer never had: it has %d, uncovered %v", used, n, got, c.uncovered())
		}
	}
}
