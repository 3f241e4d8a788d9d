package turn

import "testing"

// Rule: callers begin to yield when two callers have found the turn held, and fewer than suspectCalls
// callers between these two have found it free. Callers stop yielding when contendedCalls callers in a
// row have found the turn free. No caller yields at other times.
func TestACrowdYields(t *testing.T) {
	var c contention
	for range 3 {
		if c.note(true); c.yield() {
			t.Fatal("yield returned true, want false: no caller has found the turn held")
		}
	}
	for range 3 {
		c.note(false)
		for range suspectCalls {
			if c.yield() {
				t.Fatal("yield returned true, want false: only one of the last callers has found the turn held")
			}
			c.note(true)
		}
	}
	for round := range 2 {
		c.note(false)
		c.note(false)
		for n := range contendedCalls {
			if !c.yield() {
				t.Fatalf("round %d: yield returned false after %d callers in a row had found the turn free, want true", round, n)
			}
			c.note(true)
		}
		if c.yield() {
			t.Errorf("round %d: yield returned true after %d callers in a row had found the turn free, want false", round, contendedCalls)
		}
	}
}
