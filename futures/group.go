package futures

import (
	"context"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Group waits for many futures, of any types; its waiter wakes up only when the last of them has
// settled. The zero Group is ready for use and may be used again after each Wait. It must not be
// copied. Only one goroutine at a time may use Add and Wait.
//
//	unsettled = number of futures added and not settled
//	left = unsettled - added, or during a Wait: unsettled - waiting
//
//	         Add: added + 1, a settle: left - 1            a settle: left - 1
//	  OPEN ---------------------------------> OPEN    WAITING -------------> WAITING
//	  OPEN --- Wait: left + added - waiting ----> WAITING   | ctx ended: one CAS, unless left == -waiting
//	  OPEN <------------------------------------------------+
//	                                                  WAITING and left == -waiting: COMPLETE
//
// Exactly one step reaches COMPLETE: that of Wait, if no future is left, or that of the last
// settler. The last settler then sets SETTLED in the group's word and wakes the waiter. From
// COMPLETE to SETTLED the waiter does not leave Wait, so no settler touches a group after its Wait.
type Group struct {
	Waiter
	// left is written by the owner, in Wait, and by the settlers. The goroutine that brings left to
	// -waiting completes the group.
	left atomic.Int64
	// added is the number of futures that were added since the last Wait began. Only the owner uses
	// it; Wait moves it to left.
	added int64
	// driver is the first driver of a future that was not settled when it was added. Only the owner
	// uses it. A successful Wait clears it.
	driver Driver
}

// waiting is more than the number of futures that fit into memory.
const waiting = 1 << 40

// add, count and casLeft access the field left; each is a step of the model.
func (g *Group) add(n int64) int64 {
	model.Yield("add")
	return int64(model.Loaded(uint64(g.left.Add(n))))
}

func (g *Group) count() int64 {
	model.Yield("count")
	return int64(model.Loaded(uint64(g.left.Load())))
}

func (g *Group) casLeft(old, new int64) bool {
	model.Yield("left")
	return model.Swapped(g.left.CompareAndSwap(old, new))
}

// Add makes g's next Wait wait for f. It consumes nothing: after the Wait, take each result with
// Poll. Wait does not wait for a future that is settled already. A future is in at most one Group
// during its life.
//
// Errors: ErrInvalid, ErrConsumed, ErrDiscarded; ErrAwaited if f is in a Group already or g is
// inside Wait. Add waits only while another goroutine is inside Done, Then, Map, All, Any or Add on
// the same future. It allocates nothing.
func Add[T any](g *Group, f Future[T]) error {
	c := f.cell
	if c == nil {
		return ErrInvalid
	}
	if g.load()&bitAwaited != 0 {
		return ErrAwaited
	}
	settled, err := c.link(f.gen, bitGrouped)
	if settled || err != nil {
		return err
	}
	g.added++
	c.group = g
	d := c.driver           // valid until unlink
	c.unlink(bitGrouped, 0) // only the holder of LINK can have set GROUPED
	if g.driver == nil {
		g.driver = d
	}
	return nil
}

// Wait blocks until every future added since the last successful Wait is settled, and then forgets
// them. It wakes up one time, independent of their number. While it waits, the group's driver, if
// any, may work on this goroutine: it is the first driver of a future that was unsettled when
// added.
//
// If ctx ends first, Wait returns ctx.Err(); if the driver returns an error, Wait returns that. In
// both cases the futures stay added, and Wait can be called again. A second concurrent Wait returns
// ErrAwaited. A nil context gives ErrNilContext. Wait allocates nothing (the Group's first park
// makes a channel). It calls ctx.Done before it waits and ctx.Err only after the wait. If the
// goroutine ends or panics while it waits, the Group must not be used again.
func (g *Group) Wait(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	done := ctx.Done()
	for {
		w := g.load()
		if w&bitAwaited != 0 {
			return ErrAwaited
		}
		if g.cas(w, w|bitAwaited|bitDriven) {
			break
		}
	}
	added := g.added
	g.added = 0
	if g.add(added-waiting) != -waiting {
		err := g.wait(done, g.driver)
		for !g.Settled() {
			n := g.count()
			if n == -waiting { // the last settler still uses the group and will wake this goroutine
				_ = g.wait(nil, nil) // no context and no driver: returns when settled
				break
			}
			if g.casLeft(n, n+waiting) {
				g.reset()
				if err == nil {
					err = whyEnded(ctx)
				}
				return err
			}
		}
	}
	g.driver = nil
	g.add(waiting)
	g.reset()
	return nil
}

// reset ends a Wait. No other goroutine writes the word now: no settler can complete the group, and
// no goroutine is parked in it.
func (g *Group) reset() {
	model.Yield("reset")
	g.word.Store(nextGeneration(g.load()))
}

// arrive counts one settled future. At the last future of a Wait it settles the group.
func (g *Group) arrive() {
	if g.add(-1) != -waiting {
		return
	}
	for {
		w := g.load()
		if g.cas(w, w&^bitParked|bitSettled) {
			if w&bitParked != 0 {
				g.signal(SignalSettled)
			}
			return
		}
	}
}
