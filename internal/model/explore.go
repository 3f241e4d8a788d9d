//go:build verbena_model

package model

import (
	"cmp"
	"fmt"
	"slices"
)

// Stats counts the explored states, the steps and the runs.
type Stats struct{ States, Steps, Runs int }

// String formats s for logs.
func (s Stats) String() string {
	return fmt.Sprintf("%d states, %d steps, %d runs", s.States, s.Steps, s.Runs)
}

// explorer visits every state, breadth first.
type explorer struct {
	build  func() World
	orders [][]int
	owners []int // of the actors

	shared  map[uint64]uint32 // hash in the first order to number
	sharedX []sharedState
	local   map[uint64]uint32
	localX  []uint64
	// steps holds the known outcomes, by shared state and local state.
	steps map[uint64][]outcome

	nodes   []node
	visited map[uint64]int32
	edges   []int32 // successors of all nodes, in order
	runs    int
}

type sharedState struct {
	hashes []uint64 // in every order
	broken error
}

// outcome is the result of an actor's step.
type outcome struct {
	choice, ways  uint8
	kind          outcomeKind
	local, shared uint32 // after the step
	fault         error
}

type outcomeKind uint8

const (
	unknown  outcomeKind = iota
	disabled             // it cannot move
	untried              // it can, with an unknown result
	tried
)

// maxStates stops the search of a world that grew too large.
const maxStates = 8_000_000

// node is a state, and how it was reached.
type node struct {
	shared uint32
	locals [maxActors]uint32
	parent int32
	choice uint8
	edges  int32 // index of its first successor
}

// Explore visits every state of the world. The error is the first broken rule, followed, after the
// first line, by the steps that lead there. Run one Explore at a time; no other goroutine may call
// a hook: it would be taken for one of the world's.
func Explore(build func() World) (Stats, error) {
	e := &explorer{build: build, shared: map[uint64]uint32{}, local: map[uint64]uint32{}, steps: map[uint64][]outcome{}, visited: map[uint64]int32{}}
	err := e.explore()
	return Stats{len(e.nodes), len(e.edges), e.runs}, err
}

func (e *explorer) explore() error {
	r := open(e.build)
	defer func() { r.close() }()
	if len(r.Actors) > maxActors {
		panic(fmt.Sprintf("model: %d actors, there is room for %d", len(r.Actors), maxActors))
	}
	if e.orders = r.Orders; e.orders == nil {
		e.orders = [][]int{nil}
	}
	root := node{parent: -1, shared: e.sharedOf(r)}
	for i, a := range r.Actors {
		e.owners = append(e.owners, a.Owner)
		root.locals[i] = e.localOf(a)
	}
	if err := cmp.Or(r.fault, e.sharedX[root.shared].broken); err != nil {
		return err
	}
	e.visited[e.key(&root)] = 0
	e.nodes = append(e.nodes, root)
	for i := 0; i < len(e.nodes); i++ {
		if err := e.expand(int32(i)); err != nil {
			return err
		}
		if len(e.nodes) > maxStates {
			return fmt.Errorf("more than %d states: too large to be searched whole", maxStates)
		}
	}
	return e.endless()
}

// expand finds the successors of node i.
func (e *explorer) expand(i int32) error {
	e.nodes[i].edges = int32(len(e.edges))
	var room [maxActors]outcome
	moves := room[:0]
	for a := range e.owners {
		o := e.outcome(i, choice(a, 0))
		for way := 1; o.kind == tried; way++ {
			moves = append(moves, o)
			if way == int(o.ways) {
				break
			}
			o = e.outcome(i, choice(a, way))
		}
	}
	if len(moves) == 0 {
		r := e.replay(i)
		defer r.close()
		if err := cmp.Or(r.End(r.blocked()), r.fault); err != nil {
			return e.broken(err, e.path(i))
		}
	}
	for _, o := range moves {
		if o.fault != nil {
			return e.broken(o.fault, append(e.path(i), o.choice))
		}
		n := node{shared: o.shared, locals: e.nodes[i].locals, parent: i, choice: o.choice}
		n.locals[o.choice%maxActors] = o.local
		key := e.key(&n)
		to, known := e.visited[key]
		if !known {
			if err := e.sharedX[n.shared].broken; err != nil {
				return e.broken(err, append(e.path(i), o.choice))
			}
			to = int32(len(e.nodes))
			e.visited[key] = to
			e.nodes = append(e.nodes, n)
		}
		e.edges = append(e.edges, to)
	}
	return nil
}

// key returns the least hash of a state over all orders of the owners.
func (e *explorer) key(n *node) (least uint64) {
	for i, order := range e.orders {
		d := Digest{sum: e.sharedX[n.shared].hashes[i]}
		for pos := -1; pos < len(order); pos++ {
			owner := -1
			if pos >= 0 {
				owner = order[pos]
			}
			for a, o := range e.owners {
				if o == owner {
					d.Add(e.localX[n.locals[a]])
				}
			}
		}
		if i == 0 || d.sum < least {
			least = d.sum
		}
	}
	return least
}

// known returns the record of a step, which the caller may fill in.
func (e *explorer) known(c uint8, local, shared uint32) *outcome {
	key := uint64(shared)<<32 | uint64(local)
	list := e.steps[key]
	for i := range list {
		if list[i].choice == c {
			return &list[i]
		}
	}
	list = append(list, outcome{choice: c})
	e.steps[key] = list
	return &list[len(list)-1]
}

// outcome returns the result of choice c in node i.
func (e *explorer) outcome(i int32, c uint8) outcome {
	n := &e.nodes[i]
	o := e.known(c, n.locals[c%maxActors], n.shared)
	if o.kind == unknown || o.kind == untried {
		e.try(i, c)
		o = e.known(c, n.locals[c%maxActors], n.shared)
	}
	return *o
}

// try replays node i and makes choice c, if it can; then it goes on with any choices whose outcomes
// are not known yet.
func (e *explorer) try(i int32, c uint8) {
	r := e.replay(i)
	defer r.close()
	for first := true; ; first = false {
		shared, found := e.sharedOf(r), false
		next := uint8(0)
		for j, a := range r.Actors {
			ways := a.ways()
			for way := range max(ways, 1) {
				o := e.known(choice(j, way), e.localOf(a), shared)
				if o.kind == unknown {
					o.kind, o.ways = disabled, uint8(ways)
					if ways > 0 {
						o.kind = untried
					}
				}
				if o.kind == untried && (!found || first && o.choice == c) {
					next, found = o.choice, true
				}
			}
		}
		if !found {
			return
		}
		a := r.Actors[next%maxActors]
		from := e.localOf(a)
		fault := r.step(next)
		local, after := e.localOf(a), e.sharedOf(r)
		o := e.known(next, from, shared)
		o.kind, o.local, o.shared, o.fault = tried, local, after, fault
		if fault != nil {
			return
		}
	}
}

func (e *explorer) sharedOf(r *run) uint32 {
	first := r.shared(e.orders[0])
	id, ok := e.shared[first]
	if ok {
		return id
	}
	x := sharedState{hashes: []uint64{first}}
	for _, order := range e.orders[1:] {
		x.hashes = append(x.hashes, r.shared(order))
	}
	if r.Check != nil {
		x.broken = r.Check()
	}
	id = uint32(len(e.sharedX))
	e.shared[first] = id
	e.sharedX = append(e.sharedX, x)
	return id
}

func (e *explorer) localOf(a *Actor) uint32 {
	h := a.local()
	id, ok := e.local[h]
	if !ok {
		id = uint32(len(e.localX))
		e.local[h] = id
		e.localX = append(e.localX, h)
	}
	return id
}

func (e *explorer) path(i int32) (p []uint8) {
	for ; e.nodes[i].parent >= 0; i = e.nodes[i].parent {
		p = append(p, e.nodes[i].choice)
	}
	slices.Reverse(p)
	return p
}

// replay runs the real code to node i, and verifies that it reaches that state.
func (e *explorer) replay(i int32) *run {
	e.runs++
	r := open(e.build)
	path := e.path(i)
	for _, c := range path {
		_ = r.step(c)
	}
	same := e.sharedOf(r) == e.nodes[i].shared
	for a, actor := range r.Actors {
		same = same && e.localOf(actor) == e.nodes[i].locals[a]
	}
	if !same {
		panic("model: a replay reached another state than the one recorded: a digest leaves out state that matters\n" + tell(e.build, path))
	}
	return r
}

func (e *explorer) broken(err error, path []uint8) error {
	return fmt.Errorf("%w\n%s", err, tell(e.build, path))
}

// endless returns an error if a state can be reached from itself.
func (e *explorer) endless() error {
	successors := func(i int32) []int32 {
		if int(i)+1 == len(e.nodes) {
			return e.edges[e.nodes[i].edges:]
		}
		return e.edges[e.nodes[i].edges:e.nodes[i+1].edges]
	}
	// Remove nodes without predecessors again and again: cycles stay.
	in := make([]int32, len(e.nodes))
	for _, to := range e.edges {
		in[to]++
	}
	var free []int32
	for i := range in {
		if in[i] == 0 {
			free = append(free, int32(i))
		}
	}
	left := len(e.nodes)
	for ; len(free) > 0; left-- {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, to := range successors(i) {
			if in[to]--; in[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if left == 0 {
		return nil
	}
	// The first remaining state is on a cycle or behind one.
	first := slices.IndexFunc(in, func(n int32) bool { return n > 0 })
	return e.broken(fmt.Errorf("livelock: some schedule never ends (%d states are on or behind a cycle; the first is shown)", left), e.path(int32(first)))
}
