package actor

import (
	"context"
	"errors"
	"testing"
)

// patient waits in one of its methods until its Context ends.
type patient struct {
	in    string        // the method
	waits chan struct{} // a token when it begins to wait
	cause chan error    // of the end of the Context
}

func newPatient(in string) *patient {
	return &patient{in: in, waits: make(chan struct{}, 1), cause: make(chan error, 1)}
}

func (p *patient) wait(in string, ctx *Context[string]) {
	if in != p.in {
		return
	}
	p.waits <- struct{}{}
	<-ctx.Done()
	p.cause <- context.Cause(ctx)
}

func (p *patient) Started(ctx *Context[string]) error     { p.wait("Started", ctx); return nil }
func (p *patient) Receive(ctx *Context[string], _ string) { p.wait("Receive", ctx) }
func (p *patient) Stopped(ctx *Context[string], _ error)  { p.wait("Stopped", ctx) }

// Rule: StopNow, that of a parent too, and Close whose context has ended, end the Context of a running method.
func TestStopNowEndsTheContextOfARunningMethod(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, in := range []string{"Started", "Receive", "Stopped"} {
		for how, stop := range map[string]func(w *world, r Ref[string]){
			"StopNow":            func(_ *world, r Ref[string]) { r.StopNow() },
			"Close":              func(w *world, _ Ref[string]) { w.must("closing", w.Close(ended)) },
			"StopNow after Stop": func(_ *world, r Ref[string]) { r.Stop(); r.StopNow() },
			"StopNow, which another goroutine has begun": func(_ *world, r Ref[string]) {
				r.cell.stop.Store(stopNow) // the first step of requestStop
				r.StopNow()
			},
		} {
			t.Run(in+", "+how, func(t *testing.T) {
				w := newWorld(t, Config{})
				p := newPatient(in)
				r := spawn[string](w, Options{}, p)
				switch in {
				case "Receive":
					w.must("telling", r.Tell(w.ctx, "a"))
				case "Stopped":
					r.Stop()
				}
				wait(w, "the method", p.waits)
				stop(w, r)
				if cause := wait(w, "the end of the Context", p.cause); !errors.Is(cause, ErrStopped) {
					t.Errorf("the Context's cause is %v, want ErrStopped", cause)
				}
				wait(w, "the end", r.Done())
			})
		}
	}
}

// Rule: a parent that is stopped now or fails ends the Contexts of its children's running methods.
func TestTheEndOfAParentEndsTheContextsOfItsChildren(t *testing.T) {
	for _, how := range []string{"StopNow", "failure"} {
		w := newWorld(t, Config{})
		p, h := newPatient("Started"), newWhole()
		close(h.let)
		h.on["spawn"] = func(ctx *Context[string]) {
			_, err := Spawn(ctx, Options{}, func() Handler[string] { return p })
			w.must("spawning", err)
		}
		h.on["fail"] = func(*Context[string]) { panic(errBoom) }
		r := spawn[string](w, Options{Restart: Restart{Most: -1}}, h)
		w.must("telling", r.Tell(w.ctx, "spawn"))
		wait(w, "the child", p.waits)
		if how == "StopNow" {
			r.StopNow()
		} else {
			w.must("telling", r.Tell(w.ctx, "fail"))
		}
		if cause := wait(w, "the end of the child's Context", p.cause); !errors.Is(cause, ErrStopped) {
			t.Errorf("%s: the cause is %v, want ErrStopped", how, cause)
		}
		wait(w, "the end", r.Done())
	}
}

// Rule: Stop leaves the Context of a running method alone, and that of the methods that handle the mailbox.
func TestStopDoesNotEndTheContext(t *testing.T) {
	w := newWorld(t, Config{})
	h := newWhole()
	for _, m := range []string{"a", "b"} {
		h.on[m] = func(ctx *Context[string]) {
			if err := ctx.Err(); err != nil {
				t.Errorf("%s: after Stop the Context has ended: %v", m, err)
			}
		}
	}
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "a"))
	w.must("telling", r.Tell(w.ctx, "b"))
	h.until(w, "a")
	r.Stop()
	close(h.let)
	wait(w, "the end", r.Done())
}

// Rule: when any call of Stop or StopNow returns, Tell fails, although the call that was first is delayed before it
// shuts the mailbox.
func TestAnyStopShutsTheMailbox(t *testing.T) {
	for _, first := range []uint32{stopDrain, stopNow} {
		w := newWorld(t, Config{})
		h := newWhole()
		r := spawn[string](w, Options{}, h)
		w.must("telling", r.Tell(w.ctx, "a"))
		h.until(w, "a")          // the handler runs, so the actor does not see the request
		r.cell.stop.Store(first) // the first step of requestStop, on another goroutine
		r.Stop()
		if err := r.Tell(w.ctx, "b"); !errors.Is(err, ErrStopped) {
			t.Errorf("telling after Stop: %v, want ErrStopped", err)
		}
		close(h.let)
		wait(w, "the end", r.Done())
	}
}

// Rule: handlers that wait for one another's answers end with StopNow, and with Close whose context has ended.
func TestAnAskCycleEnds(t *testing.T) {
	type question struct{ answer Reply[int] }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, by := range []string{"StopNow", "Close"} {
		w := newWorld(t, Config{})
		var refs [2]Ref[question]
		asked := make(chan error, len(refs))
		in := make(chan struct{}, len(refs))
		for i := range refs {
			refs[i] = spawn[question](w, Options{}, Func[question](func(ctx *Context[question], _ question) {
				in <- struct{}{}
				f := Ask(ctx, refs[1-i], func(r Reply[int]) question { return question{r} })
				defer f.Discard()
				_, err := f.Await(ctx)
				asked <- err
			}))
		}
		for _, r := range refs {
			w.must("telling", r.Tell(w.ctx, question{}))
		}
		for range refs {
			wait(w, "the handlers", in)
		}
		if by == "StopNow" {
			refs[0].StopNow()
			refs[1].StopNow()
		} else {
			w.must("closing", w.Close(ended))
		}
		for _, r := range refs {
			if err := wait(w, "the end of Await", asked); err == nil {
				t.Errorf("%s: a question in a cycle was answered", by)
			}
			wait(w, "the end", r.Done())
		}
	}
}
