//go:build !verbena_model

package turn

import "testing"

// spinWork is a stepWork with outstanding work.
type spinWork struct {
	stepWork
	outstanding bool
}

func (w *spinWork) Outstanding() bool { return w.outstanding }

// Rule: with SpinPasses, too, the loop does not keep the turn while it spins, so a caller with a new result
// can drive. It spins at most Spin passes, and none without outstanding work.
func TestSpinningPassesLendTheTurn(t *testing.T) {
	const spin = 10
	for _, c := range []struct {
		name        string
		outstanding int // passes until nothing is outstanding
		brief       int // passes for which the loop only borrows the turn
	}{{"all", spin + 10, spin + 1}, {"some", 5, 4}, {"none", 0, 0}} {
		w := &spinWork{outstanding: c.outstanding > 0}
		tok := New(w, w, Config{CallerDriving: true, Spin: spin})
		brief := 0
		w.inTurn = func() {
			w.outstanding = w.turns < c.outstanding
			if tok.word.Load()&briefHold != 0 {
				brief++
			}
		}
		tok.Loop()
		if brief != c.brief {
			t.Errorf("%s: the loop only borrowed the turn for %d passes, want %d", c.name, brief, c.brief)
		}
	}
}
