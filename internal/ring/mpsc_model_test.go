//go:build verbena_model

package ring

import "testing"

// Rule: a producer that is overtaken between reading the tail and its place is not
// told that the queue is full: it tries again. Whether others push and pop there
// once, or so often that the place has come round.
func TestMPSCOvertakenAnywhere(t *testing.T) {
	defer func() { others = nil }()
	for _, size := range []int{2, 3, 4} {
		for _, overtake := range []int{1, 2, 3, 4, 5} {
			for _, popped := range []bool{true, false} {
				q := NewMPSC[int](size)
				full := !popped && overtake >= size // they fill it, and leave it so
				others = func() {
					others = nil
					for i := range overtake {
						q.Push(i)
						if popped {
							q.Pop()
						}
					}
				}
				want := Pushed
				if full {
					want = Full
				}
				if got := q.Push(-1); got != want {
					t.Errorf("of %d, overtaken by %d, popped %v: %v, want %v", size, overtake, popped, got, want)
				}
			}
		}
	}
}
