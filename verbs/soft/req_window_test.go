package soft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: within the fabric the window never changes. On a link with a socket it stays between its bounds,
// a loss halves it, a window of acknowledgements makes it grow by one, and an acknowledgement is always
// requested before it is closed. While a probe is out it is one packet, which requests an acknowledgement;
// afterwards it is as before, or half of that if packets were lost.
func TestSendWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lossy := rapid.Bool().Draw(t, "lossy")
		mtu := rapid.SampledFrom([]verbs.MTU{verbs.MTU256, verbs.MTU4096, verbs.MTU8192, verbs.MTU32768}).Draw(t, "mtu").Bytes()
		w := newWindow(lossy, true, mtu)
		first := w
		if lossy && (w.least < 2 || w.psns < w.least || w.most > windowPSNs || w.most*uint64(mtu) > windowPSNs<<12 || w.psns*uint64(mtu) > firstWindow<<12 || uint64(w.chunk) > w.psns) {
			t.Fatalf("the first window for packets of %d bytes is %+v", mtu, w)
		}
		psns := first.psns // expected, without a probe
		probing := false
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			before := w
			switch rapid.SampledFrom([]string{"acknowledged", "acknowledged", "lost", "probe"}).Draw(t, "event") {
			case "lost":
				w.lost()
				psns = max(w.least, psns/2)
			case "probe":
				w.probe()
				probing = lossy
			default:
				n := uint64(rapid.IntRange(1, int(w.psns)).Draw(t, "acknowledged"))
				late := rapid.Bool().Draw(t, "late")
				if w.probed(late) != probing {
					t.Fatalf("a probe was out: %v, want %v", !probing, probing)
				}
				if probing {
					before.acked = 0
				}
				if probing && !late {
					psns = max(w.least, psns/2)
				}
				probing = false
				w.took(n)
				if before.acked+n >= psns {
					psns = min(psns+1, w.most)
				}
			}
			switch {
			case !lossy:
				if w != first {
					t.Fatalf("within the fabric the window became %+v", w)
				}
				psns = first.psns
			case probing:
				if w.psns != 1 || w.ackEvery > 1 || w.saved != psns {
					t.Fatalf("a window of %d during a probe, and an acknowledgement for every %d packets; afterwards %d, want %d", w.psns, w.ackEvery, w.saved, psns)
				}
			case w.psns != psns:
				t.Fatalf("a window of %d, want %d (%+v before)", w.psns, psns, before)
			case w.ackEvery == 0 || uint64(w.ackEvery) > w.psns/2 || w.ackEvery > ackEvery:
				t.Fatalf("an acknowledgement for every %d packets in a window of %d", w.ackEvery, w.psns)
			}
		}
	})
}
