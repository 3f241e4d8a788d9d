package verbstest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// maxSteps bounds the steps of a virtual clock in one wait: a provider that always has work to do
// now would hang the test.
const maxSteps = 5_000_000

// In real time the first yields of a wait only let others run: most events come within 0.1 ms. Then the wait sleeps
// betweenLooks each time: some cases wait for timeouts of up to seconds, and yields alone took six times the processor time.
const (
	yields       = 256
	betweenLooks = 50 * time.Microsecond
)

// Case is one run of one case. One goroutine uses it and all objects it makes.
type Case struct {
	t       testing.TB
	pair    *Pair
	spec    *Spec
	A, B    *End
	more    []*End         // on other devices
	undo    []func() error // run in reverse
	first   []func() error // run before undo: windows, which keep their regions
	regions []*Region
	skipped string // not "": found not applicable while running
	done    bool
}

// failf ends the case as failed.
func (c *Case) failf(format string, a ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\n\trule: %s", fmt.Sprintf(format, a...), c.spec.Rule)
}

// must ends the case if a call that has to succeed failed.
func (c *Case) must(err error, format string, a ...any) {
	c.t.Helper()
	if err != nil {
		c.failf("%s: %v", fmt.Sprintf(format, a...), err)
	}
}

// refused ends the case unless err is one of the wanted errors.
func (c *Case) refused(err error, what string, want ...error) {
	c.t.Helper()
	if err == nil {
		c.failf("%s was accepted", what)
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	if len(want) > 0 {
		c.failf("%s was refused with %q, want one of %q", what, err, want)
	}
}

// unsupported ends the case as not applicable if err is ErrNotSupported.
func (c *Case) unsupported(err error) {
	if errors.Is(err, verbs.ErrNotSupported) {
		c.skipped = err.Error()
		c.t.Skipf("not applicable: %v", err)
	}
}

// defers makes f run when the case ends; f is repeated while it returns ErrBusy.
func (c *Case) defers(f func() error) { c.undo = append(c.undo, f) }

// cleanUp closes all objects in reverse order. It reports errors and continues.
func (c *Case) cleanUp() {
	if f := c.pair.Caps.Faults; f != nil {
		f.Heal()
	}
	c.undo = append(c.undo, c.first...)
	for i := len(c.undo) - 1; i >= 0; i-- {
		var err error
		waited := c.wait(c.pair.Patience, func() bool {
			c.A.drainAsync()
			c.B.drainAsync()
			for _, e := range c.more {
				e.drainAsync()
			}
			err = c.undo[i]()
			return !errors.Is(err, verbs.ErrBusy)
		})
		if err != nil || waited != nil {
			c.t.Errorf("closing what the case made: %v (%v)", err, waited)
		}
	}
	c.undo = nil
}

// now returns the pair's time.
func (c *Case) now() time.Duration {
	if k := c.pair.Caps.Clock; k != nil {
		return k.Now()
	}
	return time.Duration(time.Now().UnixNano())
}

// until drives the pair until cond holds. It ends the case if cond does not hold in time.
func (c *Case) until(what string, cond func() bool) {
	c.t.Helper()
	if err := c.wait(c.pair.Patience, cond); err != nil {
		c.failf("%s: %v", what, err)
	}
}

// wait drives the pair until cond holds, for at most limit. In virtual time it moves the clock
// from event to event; in real time it checks again and again, and sleeps in between if that is not soon.
func (c *Case) wait(limit time.Duration, cond func() bool) error {
	end := c.now() + limit
	k := c.pair.Caps.Clock
	for n := 0; !cond(); n++ {
		if k == nil {
			if n < yields {
				runtime.Gosched()
				continue
			}
			if c.now() > end {
				return fmt.Errorf("not within %v", limit)
			}
			time.Sleep(betweenLooks)
			continue
		}
		if n > maxSteps {
			return fmt.Errorf("still busy after %d steps, at %v", n, k.Now())
		}
		if k.Step() {
			continue
		}
		at, ok := k.NextEvent()
		if !ok {
			return fmt.Errorf("never: at %v nothing is left to happen", k.Now())
		}
		if at > end {
			return fmt.Errorf("not within %v: the next event is at %v", limit, at)
		}
		k.AdvanceTo(at)
	}
	return nil
}

// settle drives the pair for Pair.Quiet, so that a case can check that something did not happen.
func (c *Case) settle() { c.pass(c.pair.Quiet) }

// pass drives the pair for d.
func (c *Case) pass(d time.Duration) {
	k := c.pair.Caps.Clock
	if k == nil {
		time.Sleep(d)
		return
	}
	end := c.now() + d
	for n := 0; ; n++ {
		if n > maxSteps {
			c.failf("still busy after %d steps, at %v", n, k.Now())
		}
		if k.Step() {
			continue
		}
		at, ok := k.NextEvent()
		if !ok || at > end {
			break
		}
		k.AdvanceTo(at)
	}
	k.AdvanceTo(end)
	for k.Step() {
	}
}

// fault scripts the packets from one end to the other.
func (c *Case) fault(from, to *End, f Fault) { c.pair.Caps.Faults.Set(from.gid, to.gid, f) }
