//go:build verbena_model

package turn

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
)

// The explorer runs actors one step at a time and visits every state that any
// interleaving of their steps can reach, depth first. The actors are coroutines
// that run the real code, so a state cannot be copied: to go another way the
// world is built anew and replayed to where the way parts.
//
// A state is what is shared plus, for every actor, where it stands and what it
// knows: a hash of what it read since the last mark, at which it knows nothing
// else. Two states with the same hash have the same future, so the second is
// not followed. Hashes have 64 bits: among a million states two meet by
// accident with a probability of 3 in 100 million.
//
// A state in which nobody can move must be a good end. A state that is reached
// again on the way from itself is a livelock: some schedule never ends. As every
// way is finite and every end is good, all that must happen does happen, under
// every scheduler, a malicious one too.

// actor is one goroutine of the model.
type actor struct {
	name  string
	owner int // which caller it belongs to; -1: none
	body  func()
	// moot: nothing that it could still do has any influence; may be nil.
	moot func() bool

	next  func() (stop, bool)
	abort func()
	out   func(stop) bool
	at    stop
	done  bool

	place string // the last mark
	phase int    // where in its script it is
	knows uint64
}

// stop is where an actor waits to be let go.
type stop struct {
	label string
	ready func() bool // nil: always
}

// world is what a scenario builds for every run.
type world interface {
	actors() []*actor
	// shared adds the shared state to a hash; order is the order in which the
	// callers are counted.
	shared(h *digest, order []int)
	// reads is the shared state that the step with this label learns.
	reads(label string) uint64
	// marked hears of every mark.
	marked(a *actor)
	// check is asked in every state.
	check(actors []*actor) error
	// end is asked where nobody can move.
	end(blocked []string) error
	// orders are the ways to count the callers that make no difference.
	orders() [][]int
	String() string
}

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

// explorer is one search.
type explorer struct {
	build   func() world
	visited map[uint64]struct{}
	path    []fork
	onPath  map[uint64]bool

	world world
	cast  []*actor
	cur   *actor
	fault error
	trace *strings.Builder // nil while searching
	runs  int
}

// fork is a state on the current path.
type fork struct {
	key  uint64
	took uint8
	left []uint8 // actors that could have moved and were not tried yet
}

// model is the explorer of the running search; actors reach it through here.
var model *explorer

type aborted struct{}

func (e *explorer) stop(label string, ready func() bool) {
	a := e.cur
	if a == nil {
		return // the world is being built or checked
	}
	if !a.out(stop{label, ready}) {
		panic(aborted{})
	}
}

// learn notes what the current actor read.
func learn(v uint64) {
	d := digest(model.cur.knows)
	d.add(v)
	model.cur.knows = uint64(d)
}

func (e *explorer) mark(place string, local int) {
	a := e.cur
	var d digest
	d.text(place)
	d.add(uint64(local))
	a.place, a.knows = place, uint64(d)
	e.world.marked(a)
}

func (e *explorer) fail(format string, args ...any) {
	if e.fault == nil {
		e.fault = fmt.Errorf(format, args...)
	}
}

// explore visits every state from build's; it returns how many there are, and
// the first way that breaks a rule.
func explore(t *testing.T, build func() world, limit int) (states int, broken error) {
	t.Helper()
	e := &explorer{build: build, visited: map[uint64]struct{}{}, onPath: map[uint64]bool{}}
	model = e
	yield = func(label string) { e.stop(label, nil) }
	block, mark = e.stop, e.mark
	for {
		if err := e.run(); err != nil {
			e.trace = new(strings.Builder)
			e.fault = nil
			again := e.run()
			if again == nil || again.Error() != err.Error() {
				t.Fatalf("the replay of %q ends with %v: the model is not deterministic", err, again)
			}
			return len(e.visited), fmt.Errorf("%w\n%s", err, e.trace)
		}
		if len(e.visited) > limit {
			t.Fatalf("more than %d states: the scenario is too large to be searched whole", limit)
		}
		for len(e.path) > 0 && len(e.path[len(e.path)-1].left) == 0 {
			delete(e.onPath, e.path[len(e.path)-1].key)
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			t.Logf("%d states, %d runs", len(e.visited), e.runs)
			return len(e.visited), nil
		}
		f := &e.path[len(e.path)-1]
		f.took, f.left = f.left[0], f.left[1:]
	}
}

// run replays the path and follows it to the first state that is known, or to
// the end.
func (e *explorer) run() error {
	e.runs++
	e.cur = nil
	e.world = e.build()
	e.cast = e.world.actors()
	for _, a := range e.cast {
		a.start()
	}
	defer func() {
		e.cur = nil
		for _, a := range e.cast {
			a.abort()
		}
	}()
	replay := len(e.path)
	for depth := 0; ; depth++ {
		if depth < replay {
			if err := e.step(e.cast[e.path[depth].took], depth == replay-1); err != nil {
				return err
			}
			continue
		}
		enabled := e.enabled()
		if len(enabled) == 0 {
			return e.ended()
		}
		if e.trace != nil {
			return e.livelock() // the only way a path ends otherwise
		}
		key := e.key()
		if e.onPath[key] {
			return e.livelock()
		}
		if _, known := e.visited[key]; known {
			return nil
		}
		e.visited[key] = struct{}{}
		e.onPath[key] = true
		e.path = append(e.path, fork{key: key, took: enabled[0], left: enabled[1:]})
		if err := e.step(e.cast[enabled[0]], true); err != nil {
			return err
		}
	}
}

func (e *explorer) livelock() error {
	return errors.New("livelock: the same state is reached again and again")
}

// enabled are the actors that can move. A step that nobody else can notice and
// that notices nobody is taken at once, alone.
func (e *explorer) enabled() (list []uint8) {
	for i, a := range e.cast {
		if a.done || a.moot != nil && a.moot() || a.at.ready != nil && !a.at.ready() {
			continue
		}
		if a.at.label == "start" || a.at.label == "user.code" {
			return []uint8{uint8(i)}
		}
		list = append(list, uint8(i))
	}
	return list
}

func (e *explorer) ended() error {
	var blocked []string
	for _, a := range e.cast {
		if !a.done && (a.moot == nil || !a.moot()) {
			blocked = append(blocked, a.name+"@"+a.at.label)
		}
	}
	return e.world.end(blocked)
}

// step lets a go on to its next stop; fresh: the state after it was not checked yet.
func (e *explorer) step(a *actor, fresh bool) error {
	label := a.at.label
	if a.at.ready == nil {
		d := digest(a.knows)
		d.text(label)
		d.add(e.world.reads(label))
		a.knows = uint64(d)
	}
	e.cur = a
	at, ok := a.next()
	e.cur = nil
	a.at, a.done = at, !ok
	if e.trace != nil {
		fmt.Fprintf(e.trace, "%3d %-8s %-15s %s\n", strings.Count(e.trace.String(), "\n"), a.name, label, e.world)
	}
	if e.fault != nil || !fresh {
		return e.fault
	}
	return e.world.check(e.cast)
}

// key is the least hash of the state over all ways to count the callers.
func (e *explorer) key() uint64 {
	var least uint64
	for i, order := range e.world.orders() {
		var d digest
		e.world.shared(&d, order)
		for _, owner := range append([]int{-1}, order...) {
			for _, a := range e.cast {
				if a.owner == owner {
					a.digest(&d)
				}
			}
		}
		if i == 0 || uint64(d) < least {
			least = uint64(d)
		}
	}
	return least
}

func (a *actor) digest(d *digest) {
	if a.done || a.moot != nil && a.moot() {
		d.add(1)
		return
	}
	d.text(a.at.label)
	d.text(a.place)
	d.add(uint64(a.phase))
	d.add(a.knows)
}

// start makes the actor a coroutine that stands before its first step.
func (a *actor) start() {
	a.next, a.abort = iter.Pull(func(out func(stop) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(aborted{}) {
				panic(r)
			}
		}()
		a.out = out
		if out(stop{label: "start"}) {
			a.body()
		}
	})
	a.at, _ = a.next()
}

// phase tells the explorer where in its script the current actor is.
func phase(n int) { model.cur.phase = n }

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
