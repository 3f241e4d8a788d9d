package turn

import "testing"

// Rule: when callers find the turn held in quick succession, the callers after them yield, until
// many in a row found it free; no caller yields if the turn was always free, or held only once in a
// while.
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
