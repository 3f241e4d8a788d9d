//go:build !verbena_model

package turn

import (
	"runtime"
	"testing"
	"time"
)

// stepWork is the Work and the Sleeper of a Token that has no loop, or whose loop returns at its first
// sleep. It counts calls.
type stepWork struct {
	turns, runs int    // calls of Pass and of RunLoopTasks
	errand      bool   // a loop task is pending
	after       func() // the result of RunLoopTasks
	inTurn      func() // called in each pass
	rings       int    // calls of Wake
}

func (w *stepWork) Pass(bool) bool {
	w.turns++
	if w.inTurn != nil {
		w.inTurn()
	}
	return false
}
func (w *stepWork) Pending() bool             { return w.errand }
func (w *stepWork) Armed() bool               { return false }
func (w *stepWork) Quiet() bool               { return false }
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
	if did := tok.Step(); did || w.turns != 1 {
		t.Fatalf("Step with nothing to do returned %t and ran %d passes, want false and 1", did, w.turns)
	}
	free := false
	w.errand = true
	w.after = func() { tok.WithTurn(func() { free = true }) }
	if did := tok.Step(); !did || w.runs != 1 || !free {
		t.Fatalf("Step with a loop task returned %t and called RunLoopTasks %d times, with free = %t; want true, 1 and free = true: the user code takes the turn", did, w.runs, free)
	}
}

// Rule: if the turn has a holder, Step returns false at once, and a submission does not call Wake. If
// the turn is free, only the first submission after a Step calls Wake.
func TestStepWhileHeld(t *testing.T) {
	w := &stepWork{}
	tok := New(w, w, Config{})
	tok.WithTurn(func() {
		if tok.Step() || w.turns != 0 {
			t.Errorf("Step returned true or ran a pass while the turn had a holder, want false and no pass")
		}
		tok.Submitted()
		if w.rings != 0 {
			t.Errorf("Submitted called Wake while the turn had a holder, want no call")
		}
	})
	tok.Submitted()
	tok.Submitted()
	if w.rings != 1 {
		t.Errorf("two submissions called Wake %d times, want 1", w.rings)
	}
	tok.Step()
	tok.Submitted()
	if w.rings != 2 {
		t.Errorf("after a Step and a third submission, Wake was called %d times in all, want 2", w.rings)
	}
}

// Rule: giveUp panics if the turn has no holder.
func TestLeaveWithoutTurn(t *testing.T) {
	w := &stepWork{}
	tok := New(w, w, Config{})
	defer func() {
		if recover() == nil {
			t.Error("giveUp returned, want a panic: the turn has no holder")
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
				t.Fatal("the turn is still held when the function of WithTurn has ended")
			}
			tok.leave(true, false)
		}
	}
}
