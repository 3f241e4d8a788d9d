//go:build verbena_model

package turn

import (
	"fmt"
	"slices"
	"testing"
)

// The explorer visits every state that any interleaving of the actors' steps
// can reach.
//
// A state is the shared state plus, for every actor, where it stands and what it
// knows: what it read since the last mark, at which it knows nothing else. A
// step depends on its actor and the shared state only, so its outcome is learned
// once for each pair, by running the real code, and looked up for all the states
// that have that pair. To run it the world is built anew and replayed to the
// state, since a coroutine cannot be copied. States in which callers of one kind
// are exchanged are one state.
//
// States are known by hashes of 64 bits: among five million two meet by accident
// with a probability of less than one in a million.
//
// Rules: in every state at most one holds the turn; where nobody can move the
// world has come to a good end; and no state can be reached from itself, so that
// every schedule ends, a malicious one too. Hence all that must happen happens.
type explorer struct {
	t      *testing.T
	build  func() world
	orders [][]int // ways to count the callers that make no difference
	owners []int   // of the actors

	shared  interned // hash in the first order to number
	sharedX []sharedState
	local   interned
	localX  []localState
	// steps by shared state: what is known of each actor and local.
	steps [][]outcome

	nodes   []node
	visited map[uint64]int32
	edges   []int32 // successors of all nodes, in order
	runs    int
}

type interned map[uint64]uint32

type sharedState struct {
	hashes []uint64 // in every order
	given  int      // see world.given
	held   bool
}

type localState struct {
	hash   uint64
	holder bool // stands before a step that only the holder takes
	alone  bool // stands before a step that nobody notices
}

// outcome is what an actor's step does.
type outcome struct {
	actor         uint8
	kind          outcomeKind
	from          uint32 // its local before
	local, shared uint32 // after
	fault         error
}

type outcomeKind uint8

const (
	unknown  outcomeKind = iota
	disabled             // it cannot move
	untried              // it can, and what happens is not known
	tried
)

const maxActors = 8

// node is a state, and how it was reached.
type node struct {
	shared uint32
	locals [maxActors]uint32
	parent int32
	choice uint8
	edges  int32 // where its successors begin
}

// explore visits every state; it returns how many there are, and the shortest
// way that breaks a rule.
func explore(t *testing.T, sc scenario, limit int) (states int, broken error) {
	t.Helper()
	e := &explorer{t: t, build: sc.build, orders: sc.orders, shared: interned{}, local: interned{}, visited: map[uint64]int32{}}
	s := open(e.build)
	root := node{parent: -1, shared: e.sharedOf(s)}
	for i, a := range s.cast {
		e.owners = append(e.owners, a.owner)
		root.locals[i] = e.localOf(a)
	}
	s.close()
	e.visited[e.key(&root)] = 0
	e.nodes = append(e.nodes, root)
	for i := 0; i < len(e.nodes); i++ {
		if err := e.expand(int32(i)); err != nil {
			return len(e.nodes), err
		}
		if len(e.nodes) > limit {
			t.Fatalf("more than %d states: the scenario is too large to be searched whole", limit)
		}
	}
	if err := e.endless(); err != nil {
		return len(e.nodes), err
	}
	t.Logf("%d states, %d steps, %d runs", len(e.nodes), len(e.edges), e.runs)
	return len(e.nodes), nil
}

// expand finds the successors of node i.
func (e *explorer) expand(i int32) error {
	e.nodes[i].edges = int32(len(e.edges))
	var all [maxActors]outcome
	moves := all[:0]
	for a := range e.owners {
		o := e.outcome(i, a)
		if o.kind != tried {
			continue
		}
		if e.localX[e.nodes[i].locals[a]].alone {
			moves = append(all[:0], o)
			break
		}
		moves = append(moves, o)
	}
	if len(moves) == 0 {
		s := e.replay(i)
		defer s.close()
		if err := s.world.end(s.blocked()); err != nil {
			return e.broken(err, e.path(i))
		}
	}
	for _, o := range moves {
		if o.fault != nil {
			return e.broken(o.fault, append(e.path(i), o.actor))
		}
		n := node{shared: o.shared, locals: e.nodes[i].locals, parent: i, choice: o.actor}
		n.locals[o.actor] = o.local
		key := e.key(&n)
		to, known := e.visited[key]
		if !known {
			if err := e.check(&n); err != nil {
				return e.broken(err, append(e.path(i), o.actor))
			}
			to = int32(len(e.nodes))
			e.visited[key] = to
			e.nodes = append(e.nodes, n)
		}
		e.edges = append(e.edges, to)
	}
	return nil
}

// check: one holds, or is being given, the turn if the word says so; else none.
func (e *explorer) check(n *node) error {
	s := &e.sharedX[n.shared]
	holders := s.given
	for a := range e.owners {
		holders += ifTrue(e.localX[n.locals[a]].holder)
	}
	if holders != ifTrue(s.held) {
		return fmt.Errorf("%d hold the turn or are being given it, and that somebody does is %t", holders, s.held)
	}
	return nil
}

// key is the least hash of a state over all ways to count the callers.
func (e *explorer) key(n *node) uint64 {
	var least digest
	for i, order := range e.orders {
		d := digest(e.sharedX[n.shared].hashes[i])
		for pos := -1; pos < len(order); pos++ {
			owner := -1
			if pos >= 0 {
				owner = order[pos]
			}
			for a, o := range e.owners {
				if o == owner {
					d.add(e.localX[n.locals[a]].hash)
				}
			}
		}
		if i == 0 || d < least {
			least = d
		}
	}
	return uint64(least)
}

// known is what is known of a step; it may be extended.
func (e *explorer) known(a int, local, shared uint32) *outcome {
	list := e.steps[shared]
	for i := range list {
		if o := &list[i]; o.from == local && o.actor == uint8(a) {
			return o
		}
	}
	e.steps[shared] = append(list, outcome{actor: uint8(a), from: local})
	return &e.steps[shared][len(list)]
}

// outcome is what actor a's step does in node i.
func (e *explorer) outcome(i int32, a int) outcome {
	n := &e.nodes[i]
	o := e.known(a, n.locals[a], n.shared)
	if o.kind == unknown || o.kind == untried {
		e.try(i, a)
		o = e.known(a, n.locals[a], n.shared)
	}
	return *o
}

// try replays node i and lets a move, if it can; and then whoever can whose step
// is not known yet.
func (e *explorer) try(i int32, a int) {
	s := e.replay(i)
	defer s.close()
	for {
		shared := e.sharedOf(s)
		next := -1
		for j, actor := range s.cast {
			o := e.known(j, e.localOf(actor), shared)
			if o.kind == unknown {
				o.kind = disabled
				if actor.enabled() {
					o.kind = untried
				}
			}
			if o.kind == untried && (next < 0 || j == a) {
				next = j
			}
		}
		if next < 0 {
			return
		}
		from := e.localOf(s.cast[next])
		err := s.step(next)
		local, after := e.localOf(s.cast[next]), e.sharedOf(s)
		o := e.known(next, from, shared)
		o.kind, o.local, o.shared, o.fault = tried, local, after, err
		if err != nil {
			return
		}
		a = -1
	}
}

func (e *explorer) sharedOf(s *stage) uint32 {
	var first digest
	s.world.shared(&first, e.orders[0])
	id, ok := e.shared[uint64(first)]
	if ok {
		return id
	}
	x := sharedState{}
	x.given, x.held = s.world.given()
	for _, order := range e.orders {
		var d digest
		s.world.shared(&d, order)
		x.hashes = append(x.hashes, uint64(d))
	}
	id = uint32(len(e.sharedX))
	e.shared[uint64(first)] = id
	e.sharedX = append(e.sharedX, x)
	e.steps = append(e.steps, nil)
	return id
}

func (e *explorer) localOf(a *actor) uint32 {
	h := uint64(a.digest())
	id, ok := e.local[h]
	if ok {
		return id
	}
	l := a.at.label
	id = uint32(len(e.localX))
	e.local[h] = id
	e.localX = append(e.localX, localState{h, !a.done && a.holds(), !a.done && (l == "start" || l == "user.code")})
	return id
}

func (e *explorer) path(i int32) (p []uint8) {
	for ; e.nodes[i].parent >= 0; i = e.nodes[i].parent {
		p = append(p, e.nodes[i].choice)
	}
	slices.Reverse(p)
	return p
}

// replay runs the real code to node i, and checks that it comes there: a mark
// that forgets too much would show.
func (e *explorer) replay(i int32) *stage {
	e.runs++
	s := open(e.build)
	path := e.path(i)
	for _, c := range path {
		s.step(int(c))
	}
	same := e.sharedOf(s) == e.nodes[i].shared
	for a, actor := range s.cast {
		same = same && e.localOf(actor) == e.nodes[i].locals[a]
	}
	if !same {
		e.t.Fatalf("a replay came to another state than was looked up: a mark forgets what matters\n%s", tell(e.build, path))
	}
	return s
}

func (e *explorer) broken(err error, path []uint8) error {
	return fmt.Errorf("%w\n%s", err, tell(e.build, path))
}

// endless finds a state that can be reached from itself.
func (e *explorer) endless() error {
	successors := func(i int32) []int32 {
		if int(i)+1 == len(e.nodes) {
			return e.edges[e.nodes[i].edges:]
		}
		return e.edges[e.nodes[i].edges:e.nodes[i+1].edges]
	}
	// Take away what nothing leads to, again and again: cycles stay.
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
	// The first state that stays is on a cycle or behind one.
	for i := range in {
		if in[i] > 0 {
			return e.broken(fmt.Errorf("livelock: some schedule never ends (%d states are on or behind a cycle; the first is shown)", left), e.path(int32(i)))
		}
	}
	return nil
}
