package runtime

import "testing"

// Rule: receives that were released are posted again with the frame that tells the peer
// of them, so that one doorbell carries half of all; and none of them costs a send of its
// own, or holds the peer up.
func TestReleasedReceivesArePostedInBatches(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		const credits, rounds = 16, 40
		a, b := d.connected(t, Config{Conn: Options{RecvCredits: credits}})
		before := b.rt.Stats()
		for range rounds {
			for range credits {
				release(t, sendAndTake(t, a, b, 1)...)
			}
		}
		after := b.rt.Stats()
		posted, bells := after.RecvRequests-before.RecvRequests, after.RecvDoorbells-before.RecvDoorbells
		t.Logf("%d receives with %d doorbells, %.1f each", posted, bells, float64(posted)/float64(bells))
		if want := uint64((rounds - 1) * credits); posted < want {
			t.Errorf("%d receives were posted again, want %d at least", posted, want)
		}
		if most := uint64(rounds*credits/b.tellAt() + 1); bells > most {
			t.Errorf("%d doorbells for the receives of %d messages, want at most %d: one for half of the credits", bells, rounds*credits, most)
		}
	})
}
