package turn

import "testing"

// Rule: callers that find the turn held, one soon after another, have those after them
// yield, until many in a row found it free; nobody yields where the turn was always free,
// or held once in a while.
func TestACrowdYields(t *testing.T) {
	var c crowd
	for range 3 {
		if c.found(true); c.yields() {
			t.Fatal("a caller yields though nobody found the turn held")
		}
	}
	for range 3 {
		c.found(false)
		for range crowdNear {
			if c.yields() {
				t.Fatal("a caller yields though the turn was held once only")
			}
			c.found(true)
		}
	}
	for round := range 2 {
		c.found(false)
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
