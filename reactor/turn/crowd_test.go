package turn

import "testing"

// Rule: a caller that finds the turn held has those after it yield, until many in a row
// found it free; nobody yields where the turn was always free.
func TestACrowdYields(t *testing.T) {
	var c crowd
	for range 3 {
		if c.found(true); c.yields() {
			t.Fatal("a caller yields though nobody found the turn held")
		}
	}
	for round := range 2 {
		c.found(false)
		for n := range crowdSpell {
			if !c.yields() {
				t.Fatalf("round %d: nobody yields after %d callers found the turn free", round, n)
			}
			c.found(true)
		}
		if c.yields() {
			t.Errorf("round %d: callers yield for ever", round)
		}
	}
}
