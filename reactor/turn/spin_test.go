//go:build !verbena_model

package turn

import "testing"

// spinWork is a stepWork that may have outstanding work.
type spinWork struct {
	stepWork
	outstanding bool
}

func (w *spinWork) Quiet() bool       { return false }
func (w *spinWork) Outstanding() bool { return w.outstanding }

// Rule: while the loop spins with SpinPasses, it does not keep the turn. It takes the turn for one pass at
// a time, with the bit briefHold. So a caller can take the turn and drive. If no pass finds anything, the
// loop spins for Spin+1 passes. It stops earlier if no work is outstanding.
func TestSpinningPassesLendTheTurn(t *testing.T) {
	const spin = 10
	for _, c := range []struct {
		name        string
		outstanding int // passes until nothing is outstanding
		brief       int // passes during which the bit briefHold is set
	}{{"work always outstanding", spin + 10, spin + 1}, {"work outstanding for 5 passes", 5, 4}, {"no work outstanding", 0, 0}} {
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
			t.Errorf("%s: the loop ran %d passes with the bit briefHold, want %d", c.name, brief, c.brief)
		}
	}
}
