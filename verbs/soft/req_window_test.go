package soft

import (
	"testing"

	"pgregory.net/rapid"
)

// Rule: within the fabric the window never changes. On a link with a socket it stays between its bounds,
// a loss halves it, a window of acknowledgements makes it grow by one, and an acknowledgement is always
// requested before it is closed.
func TestSendWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lossy := rapid.Bool().Draw(t, "lossy")
		w := newWindow(lossy)
		first := w
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			before := w
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				w.lost()
				if lossy && w.psns != max(minWindow, before.psns/2) {
					t.Fatalf("a loss made a window of %d one of %d", before.psns, w.psns)
				}
			} else {
				n := uint64(rapid.IntRange(1, int(w.psns)).Draw(t, "acknowledged"))
				w.took(n)
				if grown := before.acked+n >= before.psns && before.psns < windowPSNs; w.psns != before.psns && !grown || grown && w.psns != before.psns+1 {
					t.Fatalf("%d acknowledged made a window of %d one of %d", n, before.psns, w.psns)
				}
			}
			switch {
			case !lossy && w != first:
				t.Fatalf("within the fabric the window became %+v", w)
			case w.psns < minWindow || w.psns > windowPSNs:
				t.Fatalf("a window of %d", w.psns)
			case w.ackEvery == 0 || uint64(w.ackEvery) > w.psns/2 || w.ackEvery > ackEvery:
				t.Fatalf("an acknowledgement for every %d packets in a window of %d", w.ackEvery, w.psns)
			}
		}
	})
}
