package turn

import "testing"

// Rule: callers begin to yield when two of them, one soon after the other, have found the turn held.
// They stop when contendedCalls callers in a row have found the turn free. If the turn is always
// free, or only seldom held, no caller yields.
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
