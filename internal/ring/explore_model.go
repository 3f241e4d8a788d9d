//go:build verbena_model

package ring

import (
	"errors"
	"fmt"
	"iter"
)

// World is what a model test runs in every order: goroutines over something shared. It
// is built anew for each run.
type World struct {
	// Actors are the goroutines. They run the real code, which stops before each step
	// that others may see.
	Actors []func()
	// Shared is everything that the actors' code reads and that an actor may change.
	Shared func(*Digest)
	// Ghost is what the test notes besides; no actor's code depends on it. May be nil.
	Ghost func(*Digest)
	// Check is what holds after every step. May be nil.
	Check func() error
	// End is what holds when nobody can go on.
	End func() error
}

// Explore runs the world in every order of steps and returns how many states there are,
// with the first rule that was broken and the order that breaks it: who took each step.
// Plain and atomic accesses are steps alike, in one order that all see: that plain ones
// are ordered by the atomics around them is the race detector's to say. A state that was
// met before is not followed again: what is shared, and for each actor what it has read
// since it last said [Forget]. One Explore at a time; limit is for the number of states.
func Explore(limit int, build func() World) (states int, err error) {
	seen := map[Digest]bool{}
	todo := [][]uint8{nil}
	for len(todo) > 0 {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		r := open(build())
		for _, a := range path {
			r.step(a)
		}
		for {
			if r.err == nil && r.w.Check != nil {
				r.err = r.w.Check()
			}
			if d := r.digest(); r.err == nil && seen[d] {
				break
			} else if seen[d] = true; len(seen) > limit {
				r.err = errors.New("too large to be searched whole")
			}
			can := r.enabled()
			if len(can) == 0 && r.err == nil {
				r.err = r.w.End()
			}
			if r.err != nil || len(can) == 0 {
				break
			}
			for _, a := range can[1:] {
				todo = append(todo, append(path[:len(path):len(path)], a))
			}
			path = append(path[:len(path):len(path)], can[0])
			r.step(can[0])
		}
		r.close()
		if r.err != nil {
			return len(seen), fmt.Errorf("%w (%d states; in the order %v)", r.err, len(seen), path)
		}
	}
	return len(seen), nil
}

// Await stops the calling actor until ready is true, which reads only what is shared.
func Await(ready func() bool) {
	if current != nil {
		current.stop(ready)
	}
}

// Forget says that the calling actor knows nothing any more but where it is and local,
// which tells one from the other. It must be called before each operation on what is
// shared: inside of them the code says itself what it forgets, back to here.
func Forget(local int) {
	current.base = 0
	current.base.Add(uint64(local) + 1)
	current.knows = current.base
}

// Digest is a hash of small numbers. Of a few million states two meet by accident with a
// probability of less than one in a million.
type Digest uint64

// Add takes v in.
func (d *Digest) Add(v uint64) {
	x := (uint64(*d) ^ v) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	*d = Digest(x ^ x>>32)
}

// player is an actor in one run: a coroutine that stands before its next step.
type player struct {
	next  func() (func() bool, bool)
	abort func()
	out   func(func() bool) bool
	ready func() bool // nil: always
	done  bool
	base  Digest // what it knew when the operation began
	knows Digest
}

// current is the actor whose step it is; nil between steps.
var current *player

type run struct {
	w    World
	cast []*player
	err  error
}

// aborted unwinds an actor whose run is over.
type aborted struct{}

func (p *player) stop(ready func() bool) {
	if !p.out(ready) {
		panic(aborted{})
	}
}

func open(w World) *run {
	r := &run{w: w}
	others = func() {
		if current != nil { // not what the test itself looks at
			current.stop(nil)
		}
	}
	for _, body := range w.Actors {
		p := new(player)
		p.next, p.abort = iter.Pull(func(out func(func() bool) bool) {
			defer func() {
				if e := recover(); e != nil && e != any(aborted{}) {
					r.err = fmt.Errorf("panic: %v", e)
				}
			}()
			if p.out = out; out(nil) {
				body()
			}
		})
		r.cast = append(r.cast, p)
		p.next()
	}
	return r
}

func (r *run) step(a uint8) {
	p := r.cast[a]
	r.w.Shared(&p.knows)
	current = p
	ready, going := p.next()
	current = nil
	p.ready, p.done = ready, !going
}

func (r *run) enabled() (can []uint8) {
	for a, p := range r.cast {
		if !p.done && (p.ready == nil || p.ready()) {
			can = append(can, uint8(a))
		}
	}
	return can
}

func (r *run) digest() (d Digest) {
	r.w.Shared(&d)
	if r.w.Ghost != nil {
		r.w.Ghost(&d)
	}
	for _, p := range r.cast {
		if p.done {
			d.Add(0)
		} else {
			d.Add(uint64(p.knows))
		}
	}
	return d
}

func (r *run) close() {
	for _, p := range r.cast {
		current = p
		p.abort()
	}
	current, others = nil, nil
}
