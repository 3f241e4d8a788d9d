//go:build race || interleave

package futures

import (
	"fmt"
	"iter"
	"math/bits"
	"testing"
)

// explorer runs a scene, the real code of a few goroutines, through every interleaving of their accesses to shared words.
// Its goroutines are coroutines: one runs at a time, and at each step the explorer chooses who is next. A run is the list
// of its choices; the next run changes the last one that has an alternative left (depth first).
//
// Where every goroutine has seen the same as in an earlier run, the rest is as it was then, and the run ends there: what a
// goroutine does next depends only on what it saw, and what is in the words follows from the CAS that they did.
type explorer struct {
	t       *testing.T
	name    string
	choices []int // of this run, and before it starts the prefix to follow
	widths  []int // how many alternatives each choice had
	at      int
	current *actor
	states  map[[2]uint64]bool
}

type actor struct {
	name   string
	resume func() (func() bool, bool)
	stop   func()
	yield  func(func() bool) bool
	ready  func() bool // nil: always
	ended  bool
	hash   [2]uint64 // of all that it has seen and done
	base   [2]uint64 // hash at the last mark
}

type aborted struct{}

func (e *explorer) step() { e.block(nil) }

func (e *explorer) seen(v uint64) {
	if e.current != nil {
		mix(&e.current.hash, v)
	}
}

func (e *explorer) mark() {
	if e.current != nil {
		e.current.base = e.current.hash
	}
}

func (e *explorer) again() {
	if e.current != nil {
		e.current.hash = e.current.base
	}
}

// mix adds v to a hash of 128 bits: two multiplicative ones, so that no two states of a scene fall together.
func mix(h *[2]uint64, v uint64) {
	h[0] = (bits.RotateLeft64(h[0], 5) ^ v) * 0x9e3779b97f4a7c15
	h[1] = (bits.RotateLeft64(h[1], 23) ^ v + 1) * 0xd6e8feb86659fd93
}

func (e *explorer) block(ready func() bool) {
	a := e.current
	if a == nil { // outside of actors (set-up and checks) nothing interleaves
		return
	}
	if !a.yield(ready) {
		panic(aborted{})
	}
	mix(&a.hash, 1) // one step more
}

func (e *explorer) choose(n int) int {
	if n == 1 {
		return 0
	}
	if e.at == len(e.choices) {
		e.choices, e.widths = append(e.choices, 0), append(e.widths, n)
	}
	e.at++
	return e.choices[e.at-1]
}

func (e *explorer) failf(format string, args ...any) {
	e.t.Helper()
	e.t.Fatalf("%s, choices %v: %s", e.name, e.choices, fmt.Sprintf(format, args...))
}

// scene is one scene's set-up for one run: it starts its actors with act and returns the check of the end state.
type scene func(act func(name string, body func()), fail func(string, ...any)) (check func())

// explore runs s through all interleavings and reports how many there are. limit guards against a scene too large to be
// exhaustive: exceeding it fails.
func explore(t *testing.T, name string, limit int, s scene) {
	t.Helper()
	e := &explorer{t: t, name: name, states: map[[2]uint64]bool{}}
	var sched scheduler = e
	modelled.Store(&sched)
	defer modelled.Store(nil)
	runs := 0
	for {
		if runs++; runs > limit {
			e.failf("more than %d runs", limit)
		}
		e.run(s)
		i := len(e.choices) - 1
		for i >= 0 && e.choices[i]+1 == e.widths[i] {
			i--
		}
		if i < 0 {
			t.Logf("%s: %d states, %d runs", name, len(e.states), runs)
			return
		}
		e.choices, e.widths = e.choices[:i+1], e.widths[:i+1]
		e.choices[i]++
	}
}

func (e *explorer) run(s scene) {
	e.t.Helper()
	var actors []*actor
	e.at, e.current = 0, nil
	check := s(func(name string, body func()) {
		a := &actor{name: name}
		a.resume, a.stop = iter.Pull(func(yield func(func() bool) bool) {
			defer func() {
				if r := recover(); r != nil && r != any(aborted{}) {
					panic(r)
				}
			}()
			a.yield = yield
			body()
		})
		actors = append(actors, a)
	}, e.failf)
	defer func() {
		e.current = nil
		for _, a := range actors {
			a.stop()
		}
	}()
	for {
		var enabled []*actor
		live := ""
		for _, a := range actors {
			if a.ended {
				continue
			}
			live += " " + a.name
			if a.ready == nil || a.ready() {
				enabled = append(enabled, a)
			}
		}
		if len(enabled) == 0 {
			if live != "" {
				e.current = nil
				e.failf("asleep for ever:%s", live)
			}
			break
		}
		a := enabled[e.choose(len(enabled))]
		e.current = a
		var more bool
		a.ready, more = a.resume()
		a.ended = !more
		if a.ended {
			mix(&a.hash, 2)
		}
		e.current = nil
		if e.at == len(e.choices) { // past what is replayed
			var state [2]uint64
			for _, a := range actors {
				mix(&state, a.hash[0])
				mix(&state, a.hash[1])
			}
			if e.states[state] {
				return
			}
			e.states[state] = true
		}
	}
	check()
}
