//go:build !verbena_model

package turn

import (
	"runtime"
	"testing"
	"time"
)

// stepWork is the Work and the Sleeper of a Token that a test runs with Step. It counts the calls.
type stepWork struct {
	turns, runs int
	errand      bool
	after       func()
	inTurn      func()
	rings       int
}

func (w *stepWork) Pass(bool) bool {
	w.turns++
	if w.inTurn != nil {
		w.inTurn()
	}
	return false
}
func (w *stepWork) Pending() bool             { return w.errand }
func (w *stepWork) Outstanding() bool         { return false }
func (w *stepWork) NeedsLoop() bool           { return w.errand }
func (w *stepWork) Deadline() time.Time       { return time.Time{} }
func (w *stepWork) RunLoopTasks() func()      { w.runs++; w.errand = false; return w.after }
func (w *stepWork) Wake()                     { w.rings++ }
func (w *stepWork) Wait(time.Time) WakeReason { return WakeClosed }
func (w *stepWork) Poll() WakeReason          { return 0 }

// Rule: Step runs one pass and the loop tasks. Then it gives up the turn, and calls the user code
// that RunLoopTasks has returned.
func TestStep(t *testing.T) {
	w := &stepWork{}
	tok := New(w, w, Config{})
	if tok.Step() || w.turns != 1 {
		t.Fatalf("a step with nothing to do: %d turns, want 1 and false", w.turns)
	}
	free := false
	w.errand = true
	w.after = func() { tok.WithTurn(func() { free = true }) }
	if !tok.Step() || w.runs != 1 || !free {
		t.Fatalf("a step with an errand: %d runs, user code could take the turn: %t", w.runs, free)
	}
}

// Rule: if the turn has a holder, Step returns false at once. Only the first submission after a
// step wakes the loop.
func TestStepWhileHeld(t *testing.T) {
	w := &stepWork{}
	tok := New(w, w, Config{})
	tok.WithTurn(func() {
		if tok.Step() || w.turns != 0 {
			t.Errorf("a step took the turn from its holder")
		}
		tok.Submitted()
		if w.rings != 0 {
			t.Errorf("the bell was written while the turn was held")
		}
	})
	tok.Submitted()
	tok.Submitted()
	if w.rings != 1 {
		t.Errorf("%d bells for two submissions, want 1", w.rings)
	}
	tok.Step()
	tok.Submitted()
	if w.rings != 2 {
		t.Errorf("%d bells after a step and a third submission, want 2", w.rings)
	}
}

// Rule: giveUp panics if the turn has no holder.
func TestLeaveWithoutTurn(t *testing.T) {
	w := &stepWork{}
	tok := New(w, w, Config{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	tok.giveUp(asleep)
}

// Rule: WithTurn gives the turn up even if its function panics or ends the goroutine.
func TestWithTurnThatDoesNotReturn(t *testing.T) {
	w := &loneWork{w: &lone{}}
	tok := New(w, w, Config{})
	for range 2 {
		for _, end := range []func(){func() { panic("a bug") }, runtime.Goexit} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				tok.WithTurn(end)
			}()
			<-done
			if !tok.take() {
				t.Fatal("the turn is held")
			}
			tok.leave(true)
		}
	}
}
