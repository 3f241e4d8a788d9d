package runtime

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// threeSent is three messages under way.
func threeSent(t *testing.T, a *Conn) (fs [3]Future) {
	t.Helper()
	for i := range fs {
		var err error
		if fs[i], err = a.SendBytes(testContext(t), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// Rule: a handler may close the connection and await operations, though all
// handlers are busy and more wait.
func TestBusyHandlersHoldUpNothing(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, _ := connected(t, Config{Handlers: 1, NoCallerDriving: parked})
		ctx := testContext(t)
		fs := threeSent(t, a)
		var wg sync.WaitGroup
		wg.Add(3)
		a.rt.Handle(fs[0], func(Result, error) {
			defer wg.Done()
			f, err := a.SendBytes(ctx, []byte("x"))
			if err == nil {
				_, err = f.Await(ctx)
			}
			if err != nil {
				t.Errorf("a message awaited in a handler: %v", err)
			}
			if err := a.Close(ctx); err != nil {
				t.Errorf("closing in a handler: %v", err)
			}
		})
		a.rt.Handle(fs[1], func(Result, error) { wg.Done() })
		a.rt.Handle(fs[2], func(Result, error) { wg.Done() })
		wg.Wait()
	}
}

// Rule: after Close a handler still runs.
func TestHandleAfterClose(t *testing.T) {
	a, _ := connected(t, Config{})
	fs := threeSent(t, a)
	<-fs[2].Done()
	if err := a.rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	ran := make(chan struct{}, 3)
	for _, f := range fs {
		a.rt.Handle(f, func(Result, error) { ran <- struct{}{} })
	}
	for range fs {
		<-ran
	}
}

// Rule: a handler's panic ends the program, as that of any goroutine.
func TestHandlerPanicEndsTheProgram(t *testing.T) {
	const asked = "VERBENA_TEST_HANDLER_PANICS"
	if os.Getenv(asked) != "" {
		h, err := newHandlers(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Queue(&handler{fn: func(Result, error) { panic("a handler's own") }})
		<-make(chan struct{})
	}
	out, err := itself(t, "TestHandlerPanicEndsTheProgram", asked+"=1")
	if err == nil || !strings.Contains(string(out), "panic: a handler's own") {
		t.Fatalf("the program ended with %v and said %q", err, out)
	}
}
