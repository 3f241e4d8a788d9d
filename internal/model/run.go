//go:build verbena_model

package model

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// World is the subject of a search: goroutines and their shared data. It is built anew for each
// run.
type World struct {
	Actors []*Actor
	// Shared hashes all data that the actors' code reads and an actor may change. Nil: the shared
	// data follow from the values that all actors have read, and they report all they read.
	Shared func(*Digest)
	// Ghost hashes what the test records; no actor's code depends on it. May be nil.
	Ghost func(*Digest)
	// Reads returns what the step after a Yield with this label learns of the shared data. Other
	// values are reported where they are read ([Learn]), or show in the actor's position. Nil: all.
	Reads func(label string) uint64
	// Atomic reports the labels that are no stops here, because another world explores the code
	// around them. May be nil.
	Atomic func(label string) bool
	// Orders are the permutations of the actors' owners that make no difference: states that differ
	// only by one of them are the same state. See [Digest.Place].
	Orders [][]int
	// Check verifies the shared data of every state. May be nil.
	Check func() error
	// End verifies a state in which no actor can go on; waiting actors are listed as "name@label".
	End func(blocked []string) error
	// Tell returns the description of a state for reports. May be nil.
	Tell func() string
}

// Act adds a goroutine without an owner. body runs up to its first hook before any other actor
// runs.
func (w *World) Act(name string, body func()) *Actor {
	a := &Actor{Name: name, Owner: -1, Body: body}
	w.Actors = append(w.Actors, a)
	return a
}

// Actor is one goroutine of a World: a coroutine that runs the real code from stop to stop.
type Actor struct {
	Name  string
	Owner int // the World's caller that it belongs to; -1: none
	Body  func()

	run   *run
	next  func() (stop, bool)
	abort func()
	out   func(stop) bool
	at    stop
	way   int // the way it goes from there
	done  bool

	base  Digest // what it knows for good
	place string // the last Mark,
	mark  Digest // what it knew there,
	knows Digest // and what it read since
}

// At returns the label of the stop where the actor is, and the last Mark. It is not for the actor
// that is running its step.
func (a *Actor) At() (label, place string) { return a.at.label, a.place }

// stop is a point where an actor waits until it is resumed.
type stop struct {
	label string
	ways  func() int // the number of ways to go on; nil: one
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

// ways returns the number of ways in which the actor can go on.
func (a *Actor) ways() int {
	switch {
	case a.done:
		return 0
	case a.at.ways == nil:
		return 1
	}
	return a.at.ways()
}

// local hashes the actor's position and knowledge.
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

// run is one run of a world: built, replayed along a path, and continued.
type run struct {
	World
	fault error
}

// latest is the run that was opened last.
var latest *run

// open builds a world and runs its actors to their first stops.
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

// A choice is the actor that goes on, and its way.
const (
	maxActors = 1 << actorBits
	actorBits = 3
)

func choice(actor, way int) uint8 { return uint8(way<<actorBits | actor) }

// step runs an actor to its next stop.
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

// shared hashes the shared data, with the owners in this order.
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

// tell replays a path and describes each step.
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

// Digest is a 64-bit hash of numbers: two of five million states collide with a probability of less
// than one in a million.
type Digest struct {
	sum   uint64
	order []int
}

// Add adds v to the hash.
func (d *Digest) Add(v uint64) {
	x := (bits.RotateLeft64(d.sum, 7) ^ v + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	d.sum = x ^ x>>32
}

// Sum returns the hash.
func (d *Digest) Sum() uint64 { return d.sum }

// Text adds s to the hash.
func (d *Digest) Text(s string) {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	d.Add(h)
}

// Bits adds up to 63 conditions to the hash.
func (d *Digest) Bits(bs ...bool) {
	v := uint64(1)
	for _, b := range bs {
		v = v<<1 | uint64(one(b))
	}
	d.Add(v)
}

// Place returns the owner's position in the order of owners that is hashed. Shared data must refer
// to owners by their places.
func (d *Digest) Place(owner int) uint64 {
	for i, o := range d.order {
		if o == owner {
			return uint64(i)
		}
	}
	return uint64(owner)
}

// Owners returns all owners in [World.Orders], in the order that is hashed.
func (d *Digest) Owners() []int { return d.order }
