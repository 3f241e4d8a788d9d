//go:build verbena_model

package turn

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"strings"
	"testing"
)

// The explorer runs actors one atomic step at a time and visits every state
// that any interleaving can reach. A state is what is shared plus, for every
// actor, where it stands and what it has seen since it last knew nothing. Runs
// are replayed from the start along a prefix of choices; a run ends when it
// meets a state that was visited.

type actor struct {
	name    string
	resume  chan bool // true: go on; false: the run is over
	label   string
	ready   func() bool
	history uint64 // hash of what it saw; 0 when it knows nothing
	done    bool
}

type scenario struct {
	// build makes a fresh world: its actors' bodies, what is shared, and the
	// rule that must hold when nothing can move any more.
	build func() world
}

type world struct {
	names  []string
	bodies []func()
	shared func() string
	// seen is the part of the shared state that a step with this label reads.
	seen func(label string) string
	// forget tells labels at which an actor knows nothing but its place.
	forget func(label string) bool
	// end is checked when no actor can move; blocked names them.
	end func(blocked []string) error
}

type explorer struct {
	cur    *actor
	back   chan struct{}
	failed error
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// stop is the model's yield and block.
func (e *explorer) stop(label string, ready func() bool) {
	a := e.cur
	a.label, a.ready = label, ready
	e.back <- struct{}{}
	if !<-a.resume {
		runtime.Goexit()
	}
}

func (e *explorer) fail(format string, args ...any) {
	if e.failed == nil {
		e.failed = fmt.Errorf(format, args...)
	}
}

// explore visits every state; it returns how many there are, and the first
// trace that breaks a rule.
func explore(t *testing.T, sc scenario, limit int) (states int, broken error) {
	t.Helper()
	visited := map[uint64]bool{}
	stack := [][]byte{nil}
	for len(stack) > 0 {
		prefix := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		alts, err := run(sc, prefix, visited)
		if err != nil {
			return len(visited), err
		}
		stack = append(stack, alts...)
		if len(visited) > limit {
			t.Fatalf("more than %d states: the scenario is too large to be searched whole", limit)
		}
	}
	return len(visited), nil
}

func run(sc scenario, prefix []byte, visited map[uint64]bool) (alts [][]byte, broken error) {
	e := &explorer{back: make(chan struct{})}
	yield = func(label string) { e.stop(label, nil) }
	block = func(label string, ready func() bool) { e.stop(label, ready) }
	theExplorer = e
	w := sc.build()
	actors := make([]*actor, len(w.bodies))
	for i, body := range w.bodies {
		a := &actor{name: w.names[i], resume: make(chan bool), label: "start"}
		actors[i] = a
		go func() {
			defer func() { a.done = true; e.back <- struct{}{} }()
			if !<-a.resume {
				runtime.Goexit()
			}
			body()
		}()
	}
	defer func() {
		for _, a := range actors {
			if !a.done {
				a.resume <- false
				<-e.back
			}
		}
	}()
	var trace []string
	path := append([]byte(nil), prefix...)
	for depth := 0; ; depth++ {
		var enabled []int
		for i, a := range actors {
			if !a.done && (a.ready == nil || a.ready()) {
				enabled = append(enabled, i)
			}
		}
		if len(enabled) == 0 {
			var blocked []string
			for _, a := range actors {
				if !a.done {
					blocked = append(blocked, a.name+"@"+a.label)
				}
			}
			if err := w.end(blocked); err != nil {
				return nil, fmt.Errorf("%w\n%s", err, strings.Join(trace, "\n"))
			}
			return alts, nil
		}
		choice := enabled[0]
		if depth < len(prefix) {
			choice = int(prefix[depth])
		} else {
			key := []string{w.shared()}
			for _, a := range actors {
				key = append(key, fmt.Sprint(a.label, a.history, a.done))
			}
			k := hash(key...)
			if visited[k] {
				return alts, nil
			}
			visited[k] = true
			for _, other := range enabled[1:] {
				alts = append(alts, append(append([]byte(nil), path...), byte(other)))
			}
			path = append(path, byte(choice))
		}
		a := actors[choice]
		trace = append(trace, fmt.Sprintf("%3d %-8s %-16s %s", depth, a.name, a.label, w.shared()))
		if w.forget(a.label) {
			a.history = 0
		} else {
			a.history = hash(fmt.Sprint(a.history), a.label, w.seen(a.label))
		}
		e.cur = a
		a.resume <- true
		<-e.back
		if e.failed != nil {
			return nil, fmt.Errorf("%w\n%s", e.failed, strings.Join(trace, "\n"))
		}
	}
}

// theExplorer is the one of the running replay; actors reach it through here.
var theExplorer *explorer
