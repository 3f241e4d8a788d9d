package turn

import "testing"

// Rule: after two callers have found the turn held in quick succession, callers yield until many in
// a row have found it free. If the turn is always free, or held only now and then, no caller
// yields.
func TestACrowdYields(t *testing.T) {
	var c contention
	for range 3 {
		if c.note(true); c.yield() {
			t.Fatal("a caller yields though nobody found the turn held")
		}
	}
	for range 3 {
		c.note(false)
		for range suspectCalls {
			if c.yield() {
				t.Fatal("a caller yields though the turn was held once only")
			}
			c.note(true)
		}
	}
	for round := range 2 {
		c.note(false)
		c.note(false)
		for n := range contendedCalls {
			if !c.yield() {
				t.Fatalf("round %d: nobody yields after %d callers found the turn free", round, n)
			}
			c.note(true)
		}
		if c.yield() {
			t.Errorf("round %d: callers yield for ever", round)
		}
	}
}
