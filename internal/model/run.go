//go:build verbena_model

package model

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// World is what is explored: goroutines over something shared. It is built anew for each run.
type World struct {
	Actors []*Actor
	// Shared is everything that the actors' code reads and an actor may change. Nil: what is
	// shared follows from what all actors have read, and they say all that they read.
	Shared func(*Digest)
	// Ghost is what the test notes besides; no actor's code depends on it. May be nil.
	Ghost func(*Digest)
	// Reads is what the step behind a Yield with this label learns of what is shared. What is
	// not in it is said where it is read ([Learn]), or shows in where the actor goes. Nil: all.
	Reads func(label string) uint64
	// Atomic tells of labels that are no stops here: what is around them another world explores.
	// May be nil.
	Atomic func(label string) bool
	// Orders are the ways to count the owners of actors that make no difference: states in which
	// they are exchanged are one. See [Digest.Place].
	Orders [][]int
	// Check is what holds in every state, of what is shared. May be nil.
	Check func() error
	// End is what holds when nobody can go on; those who wait are "name@label".
	End func(blocked []string) error
	// Tell is what a report shows of a state. May be nil.
	Tell func() string
}

// Act adds a goroutine, which belongs to nobody. What body does before it comes to a hook it does
// before anybody else does anything.
func (w *World) Act(name string, body func()) *Actor {
	a := &Actor{Name: name, Owner: -1, Body: body}
	w.Actors = append(w.Actors, a)
	return a
}

// Actor is one goroutine of a World: a coroutine that runs the real code from stop to stop.
type Actor struct {
	Name  string
	Owner int // which of the World's callers it belongs to; -1: to none
	Body  func()

	run   *run
	next  func() (stop, bool)
	abort func()
	out   func(stop) bool
	at    stop
	way   int // which it goes from there
	done  bool

	base  Digest // what it knows for good
	place string // the last Mark,
	mark  Digest // and what it knew there
	knows Digest // what it read since
}

// At is the label of the stop where the actor stands, and Place the last mark; not for the one
// whose step it is.
func (a *Actor) At() (label, place string) { return a.at.label, a.place }

// stop is where an actor waits to be let go.
type stop struct {
	label string
	ways  func() int // how many there are to go on; nil: one
}

// aborted unwinds an actor whose run is over.
type aborted struct{}

func (a *Actor) stop(s stop) {
	if !a.out(s) {
		panic(aborted{})
	}
}

func (a *Actor) keep() {
	if a.knows.sum != 0 {
		a.base.Add(a.knows.sum)
	}
	a.knows = Digest{}
}

// ways is in how many ways it can go on.
func (a *Actor) ways() int {
	switch {
	case a.done:
		return 0
	case a.at.ways == nil:
		return 1
	}
	return a.at.ways()
}

// local is where the actor stands and what it knows.
func (a *Actor) local() uint64 {
	var d Digest
	if a.done && a.run.Shared != nil {
		return 0
	}
	d.Text(a.at.label)
	d.Text(a.place)
	d.Add(a.base.sum)
	d.Add(a.mark.sum)
	d.Add(a.knows.sum)
	d.Bits(a.done)
	return d.sum
}

// run is one run of a world: built, replayed along a path, and gone on with.
type run struct {
	World
	fault error
}

// latest is the run that was opened last.
var latest *run

// open builds a world and lets its actors come to their first stops.
func open(build func() World) *run {
	r := &run{World: build()}
	latest = r
	for _, a := range r.Actors {
		a.run = r
		a.next, a.abort = iter.Pull(func(out func(stop) bool) {
			defer func() {
				if v := recover(); v != nil && v != any(aborted{}) {
					r.failf("panic: %v", v)
				}
			}()
			a.out = out
			a.Body()
		})
		r.let(a)
	}
	return r
}

func (r *run) let(a *Actor) {
	current = a
	at, going := a.next()
	current = nil
	a.at, a.done = at, !going
}

func (r *run) close() {
	for _, a := range r.Actors {
		current = a
		a.abort()
	}
	current = nil
}

func (r *run) failf(format string, args ...any) {
	if r.fault == nil {
		r.fault = fmt.Errorf(format, args...)
	}
}

// A choice is who goes on, and which way.
const (
	maxActors = 1 << actorBits
	actorBits = 3
)

func choice(actor, way int) uint8 { return uint8(way<<actorBits | actor) }

// step lets an actor go on to its next stop.
func (r *run) step(c uint8) error {
	a := r.Actors[c%maxActors]
	a.way = int(c >> actorBits)
	if waits := a.at.ways != nil; r.Reads == nil || !waits {
		a.knows.Text(a.at.label)
		switch {
		case r.Reads != nil:
			a.knows.Add(r.Reads(a.at.label))
		case r.Shared != nil:
			r.Shared(&a.knows)
		}
	}
	r.let(a)
	return r.fault
}

// shared is the hash of what is shared, the owners counted in this order.
func (r *run) shared(order []int) uint64 {
	d := Digest{order: order}
	if r.Shared == nil {
		for _, a := range r.Actors {
			d.Add(a.local())
		}
		return d.sum
	}
	r.Shared(&d)
	if r.Ghost != nil {
		r.Ghost(&d)
	}
	return d.sum
}

func (r *run) blocked() (names []string) {
	for _, a := range r.Actors {
		if !a.done {
			names = append(names, a.Name+"@"+a.at.label)
		}
	}
	return names
}

// tell replays a path and writes down what happens.
func tell(build func() World, path []uint8) string {
	var b strings.Builder
	r := open(build)
	defer r.close()
	for i, c := range path {
		a := r.Actors[c%maxActors]
		label, state := a.at.label, ""
		_ = r.step(c)
		if r.Tell != nil {
			state = r.Tell()
		}
		fmt.Fprintf(&b, "%3d %-10s %-15s %s\n", i, a.Name, label, state)
	}
	return b.String()
}

// Digest is a hash of numbers, of 64 bits: of five million states two meet by accident with a
// probability of less than one in a million.
type Digest struct {
	sum   uint64
	order []int
}

// Add takes v in.
func (d *Digest) Add(v uint64) {
	x := (bits.RotateLeft64(d.sum, 7) ^ v + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	d.sum = x ^ x>>32
}

// Sum is the hash.
func (d *Digest) Sum() uint64 { return d.sum }

// Text takes s in.
func (d *Digest) Text(s string) {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	d.Add(h)
}

// Bits takes in up to 63 conditions.
func (d *Digest) Bits(bs ...bool) {
	v := uint64(1)
	for _, b := range bs {
		v = v<<1 | uint64(one(b))
	}
	d.Add(v)
}

// Place is where in the order, in which the owners are counted, the owner is: what is shared
// names owners by it.
func (d *Digest) Place(owner int) uint64 {
	for i, o := range d.order {
		if o == owner {
			return uint64(i)
		}
	}
	return uint64(owner)
}

// Owners are all of [World.Orders], in the order in which they are counted.
func (d *Digest) Owners() []int { return d.order }
