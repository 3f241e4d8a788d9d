//go:build verbena_model

package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
	"github.com/verbena-rdma/verbena/internal/ring"
)

// stopScene is goroutines that stop an actor, each with one request and one Tell after it, beside one that tells,
// and a runner that begins the instance and handles what is told.
type stopScene struct {
	stops    []uint32
	tells    int
	overflow Overflow
}

func (s stopScene) world() func() model.World {
	return func() model.World {
		c := &cell[told]{box: ring.NewMPSC[envelope[told]](2)}
		c.body = c
		if s.overflow == Wait {
			c.room = newRoom()
		}
		c.word.s.Store(rescan) // the runner runs, and looks again
		var accepted, taken []told
		runs := false // the runner calls methods of the instance
		alive := func() bool { return runs && c.life.Load().Err() == nil }
		box := func(d *model.Digest) {
			c.box.Digest(d, func(e *envelope[told]) uint64 { return uint64(e.m.sender)<<8 | uint64(e.m.n) })
		}
		m := model.World{
			Shared: func(d *model.Digest) {
				box(d)
				d.Add(uint64(c.stop.Load())<<32 | uint64(c.stopSeen))
				l := c.life.Load()
				d.Bits(l != nil, l != nil && l.Err() == nil, runs)
				if r := c.room; r != nil {
					d.Bits(r.wanted.Load(), r.overtaken.Load())
					d.Add(uint64(len(r.token))<<8 | uint64(len(r.freed)))
				}
			},
			Ghost: func(d *model.Digest) { d.Add(uint64(len(accepted))<<8 | uint64(len(taken))) },
			Reads: func(label string) uint64 { // everything else that is read shows in the next step
				switch label {
				case "tell", "room.wanted", "mpsc.push":
					return c.box.Tail()
				case "step":
					var d model.Digest
					box(&d)
					return d.Sum() + uint64(c.stop.Load())
				}
				return 0
			},
			End: func(blocked []string) error {
				if slices.ContainsFunc(blocked, func(b string) bool { return b != "runner@look" }) {
					return fmt.Errorf("a call waits for ever; blocked: %v", blocked)
				}
				if len(accepted) != len(taken) {
					return fmt.Errorf("%v was accepted, and %v was taken", accepted, taken)
				}
				if slices.Contains(s.stops, stopNow) && alive() {
					return errors.New("after StopNow the Context lives on")
				}
				return nil
			},
		}
		tell := func(t told) error {
			err := c.tell(context.Background(), &envelope[told]{m: t})
			if err == nil {
				accepted = append(accepted, t)
			}
			return err
		}
		for i, how := range s.stops {
			m.Act(fmt.Sprint("stop", i), func() {
				model.Yield("begin")
				c.requestStop(how)
				model.Yield("stopped")
				if how == stopNow && alive() {
					model.Failf("after StopNow has returned the Context lives on")
				}
				if err := tell(told{i, 0}); !errors.Is(err, ErrStopped) {
					model.Failf("after Stop has returned Tell returns %v", err)
				}
			})
		}
		m.Act("tell", func() {
			for k := range s.tells {
				model.Forget(k)
				model.Yield("begin")
				_ = tell(told{len(s.stops), k}) // a full mailbox refuses it
			}
		})
		m.Act("runner", func() {
			c.beginLife()
			runs = true
			for {
				model.Forget(0)
				model.Block("look", func() bool { return c.stop.Load() > c.stopSeen || c.box.Len() > 0 })
				model.Yield("step")
				if how := c.stop.Load(); how > c.stopSeen {
					c.stopSeen = how
					c.shut() // as applyStop does
					continue
				}
				var e envelope[told]
				if c.take(&e) {
					taken = append(taken, e.m)
				}
			}
		})
		return m
	}
}

// Rule: in every interleaving, after any Stop has returned Tell fails, after any StopNow has returned the Context of
// a running method has ended, and what was accepted is taken.
func TestModelStop(t *testing.T) {
	for _, s := range []stopScene{
		{stops: []uint32{stopDrain}, tells: 3}, {stops: []uint32{stopNow}, tells: 3},
		{stops: []uint32{stopDrain, stopDrain}, tells: 1}, {stops: []uint32{stopNow, stopNow}, tells: 1},
		{stops: []uint32{stopDrain, stopNow}, tells: 1}, {stops: []uint32{stopDrain}, tells: 3, overflow: Wait},
	} {
		model.Holds(t, fmt.Sprintf("%+v", s), s.world())
	}
}

// Rule: each protection is needed: without it some interleaving breaks what Stop or StopNow promises.
func TestModelStopMutants(t *testing.T) {
	const delayed = "if MUTANT && a.stop.Load() >= how { return }\n\t"
	mutate.Test(t,
		mutate.New("a second Stop shuts the mailbox, too", "Tell returns", stopScene{stops: []uint32{stopDrain, stopDrain}}.world()).
			In("core.go", "model.Yield(\"stop\")", delayed+"model.Yield(\"stop\")"),
		mutate.New("StopNow ends the Context", "lives on", stopScene{stops: []uint32{stopNow}}.world()).
			In("core.go", "if how == stopNow {\n\t\tmodel", "if how == stopNow && !MUTANT {\n\t\tmodel"),
		mutate.New("an instance that begins looks for StopNow", "lives on", stopScene{stops: []uint32{stopNow}}.world()).
			In("core.go", "if a.stop.Load() == stopNow {", "if !MUTANT && a.stop.Load() == stopNow {"),
		mutate.New("the mailbox is shut before Stop returns", "Tell returns", stopScene{stops: []uint32{stopDrain}}.world()).
			In("core.go", "model.Yield(\"stop.shut\")\n\ta.body.shut()", "model.Yield(\"stop.shut\")\n\tif !MUTANT { a.body.shut() }"))
}
