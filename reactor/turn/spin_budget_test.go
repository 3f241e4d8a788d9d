//go:build !verbena_model

package turn

import (
	"testing"
	"time"
)

// Rule: a budget doubles if the loop is woken within 16*cost after the arming, and is halved if the
// loop is woken later. Here cost is the argument of NewBudget. The budget stays between cost/8 and
// 16*cost.
func TestPaceFollowsWhatComes(t *testing.T) {
	const cost = 20 * time.Microsecond
	p := NewBudget(cost)
	if b := p.Time(); b != cost {
		t.Fatalf("the budget begins at %v, want %v", b, cost)
	}
	p.most = int64(time.Hour) // a wake-up within an hour counts as early, so a slow machine does no harm
	limit := 16 * cost
	p.noteArmed()
	p.noteWakeup()
	if b := p.Time(); b != 2*cost {
		t.Errorf("after an early wake-up the budget is %v, want %v", b, 2*cost)
	}
	p.most = int64(limit)
	for range 100 {
		p.armedAt.Store(now()) // the loop goes to sleep and is woken at once
		p.noteWakeup()
	}
	if b := p.Time(); b > limit {
		t.Errorf("after 100 early wake-ups the budget is %v, want at most %v", b, limit)
	}
	for want := p.Time() / 2; want > cost/8; want /= 2 {
		p.armedAt.Store(now() - int64(time.Second))
		if p.noteWakeup(); p.Time() != want {
			t.Fatalf("after a late wake-up the budget is %v, want %v", p.Time(), want)
		}
	}
	for range 100 {
		p.armedAt.Store(now() - int64(time.Second))
		p.noteWakeup()
	}
	if b := p.Time(); b != cost/8 {
		t.Errorf("after 100 more late wake-ups the budget is %v, want %v", b, cost/8)
	}
}

// Rule: NewBudget limits the cost to the range from 1 µs to maxCost. So if the measured cost is too
// small, the loop still spins. If the measured cost is too large, the loop does not spin for seconds.
func TestPaceIsBounded(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{0: time.Microsecond, time.Minute: maxCost, time.Millisecond / 10: time.Millisecond / 10} {
		if b := NewBudget(cost).Time(); b != want {
			t.Errorf("NewBudget(%v) begins at %v, want %v", cost, b, want)
		}
	}
}
