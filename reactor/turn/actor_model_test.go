//go:build verbena_model

package turn

import (
	"iter"
	"slices"
)

// actor is one goroutine of the model: a coroutine that runs the real code from
// stop to stop.
type actor struct {
	name  string
	owner int // which caller it belongs to; -1: none
	body  func()

	next  func() (stop, bool)
	abort func()
	out   func(stop) bool
	at    stop
	done  bool

	place string // the last mark
	phase int    // where in its script it is
	knows digest // what it read since the last mark
}

// stop is where an actor waits to be let go.
type stop struct {
	label string
	ready func() bool // nil: always
}

// aborted unwinds an actor whose run is over.
type aborted struct{}

// start makes the actor a coroutine that stands before its first step.
func (a *actor) start() {
	a.next, a.abort = iter.Pull(func(out func(stop) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(aborted{}) {
				on.fail("panic: %v", r)
			}
		}()
		a.out = out
		if out(stop{label: "start"}) {
			a.body()
		}
	})
	a.at, _ = a.next()
}

func (a *actor) enabled() bool { return !a.done && (a.at.ready == nil || a.at.ready()) }

// digest is where the actor stands and what it knows.
func (a *actor) digest() digest {
	var d digest
	if a.done {
		return d
	}
	d.text(a.at.label)
	d.text(a.place)
	d.add(uint64(a.phase))
	d.add(uint64(a.knows))
	return d
}

// digest is a hash of small numbers.
type digest uint64

func (d *digest) add(v uint64) {
	x := (uint64(*d) ^ v) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	*d = digest(x ^ x>>32)
}

func (d *digest) text(s string) {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	d.add(h)
}

func (d *digest) bits(bs ...bool) {
	v := uint64(1)
	for _, b := range bs {
		v = v<<1 | uint64(ifTrue(b))
	}
	d.add(v)
}

// permutations of the callers that leave every kind where it is.
func permutations(kinds []string) (out [][]int) {
	var extend func(p []int)
	extend = func(p []int) {
		if len(p) == len(kinds) {
			out = append(out, slices.Clone(p))
			return
		}
		for i := range kinds {
			if !slices.Contains(p, i) && kinds[i] == kinds[len(p)] {
				extend(append(p, i))
			}
		}
	}
	extend(nil)
	return out
}
