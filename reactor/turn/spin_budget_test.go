//go:build !verbena_model

package turn

import (
	"testing"
	"time"
)

// Rule: a budget doubles if the loop is woken soon after the arming, and is halved if it is woken
// late. It stays between an eighth and 16 times the cost of a wake-up.
func TestPaceFollowsWhatComes(t *testing.T) {
	const cost = 20 * time.Microsecond
	p := NewBudget(cost)
	if b := p.Time(); b != cost {
		t.Fatalf("it begins with %v, want %v", b, cost)
	}
	p.most = int64(time.Hour) // every wake-up counts as soon, however slow the machine
	limit := 16 * cost
	p.noteArmed()
	p.noteWakeup()
	if b := p.Time(); b != 2*cost {
		t.Errorf("woken soon: %v, want %v", b, 2*cost)
	}
	p.most = int64(limit)
	for range 100 {
		p.armedAt.Store(now()) // the loop goes to sleep and is woken at once
		p.noteWakeup()
	}
	if b := p.Time(); b > limit {
		t.Errorf("woken soon again and again: %v, want at most %v", b, limit)
	}
	for want := p.Time() / 2; want > cost/8; want /= 2 {
		p.armedAt.Store(now() - int64(time.Second))
		if p.noteWakeup(); p.Time() != want {
			t.Fatalf("woken late: %v, want %v", p.Time(), want)
		}
	}
	for range 100 {
		p.armedAt.Store(now() - int64(time.Second))
		p.noteWakeup()
	}
	if b := p.Time(); b != cost/8 {
		t.Errorf("woken late again and again: %v, want %v", b, cost/8)
	}
}

// Rule: the cost is limited to between a microsecond and maxCost. So a wrong measurement neither
// makes a loop spin for seconds nor stops it from spinning.
func TestPaceIsBounded(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{0: time.Microsecond, time.Minute: maxCost, time.Millisecond / 10: time.Millisecond / 10} {
		if b := NewBudget(cost).Time(); b != want {
			t.Errorf("a wake-up of %v gives a budget of %v, want %v", cost, b, want)
		}
	}
}
