//go:build verbena_model

package turn

import (
	"fmt"
	"strings"
)

// stage is one run of a world: built, replayed along a path, and gone on with.
type stage struct {
	world world
	cast  []*actor
	cur   *actor
	fault error
}

// world is what a scenario builds for every run.
type world interface {
	actors() []*actor
	// shared adds the shared state to a hash; order is the order in which the
	// callers are counted.
	shared(d *digest, order []int)
	// reads is what the step with this label learns of the shared state.
	reads(label string) uint64
	// marked hears of every mark.
	marked(a *actor)
	// given is how many have been given the turn and do not know yet; and
	// whether the word says that the turn is held.
	given() (n int, held bool)
	// end is asked where nobody can move.
	end(blocked []string) error
	String() string
}

// on is the stage that runs; actors reach it through here.
var on *stage

// open builds a world and puts its actors at their beginnings.
func open(build func() world) *stage {
	s := &stage{}
	on = s
	yield = func(label string) { s.stop(label, nil) }
	block, mark = s.stop, s.mark
	s.world = build()
	s.cast = s.world.actors()
	for _, a := range s.cast {
		a.start()
	}
	return s
}

func (s *stage) close() {
	s.cur = nil
	for _, a := range s.cast {
		a.abort()
	}
}

func (s *stage) stop(label string, ready func() bool) {
	if a := s.cur; a != nil && !a.out(stop{label, ready}) {
		panic(aborted{})
	}
}

func (s *stage) mark(place string, local int) {
	a := s.cur
	if a == nil {
		return
	}
	a.place, a.knows = place, digest(local)
	s.world.marked(a)
}

func (s *stage) fail(format string, args ...any) {
	if s.fault == nil {
		s.fault = fmt.Errorf(format, args...)
	}
}

// learn notes what the current actor read.
func learn(v uint64) { on.cur.knows.add(v) }

// phase tells where in its script the current actor is.
func phase(n int) { on.cur.phase = n }

// step lets actor i go on to its next stop.
func (s *stage) step(i int) error {
	a := s.cast[i]
	if a.at.ready == nil {
		a.knows.text(a.at.label)
		a.knows.add(s.world.reads(a.at.label))
	}
	s.cur = a
	at, ok := a.next()
	s.cur = nil
	a.at, a.done = at, !ok
	return s.fault
}

func (s *stage) blocked() (names []string) {
	for _, a := range s.cast {
		if !a.done {
			names = append(names, a.name+"@"+a.at.label)
		}
	}
	return names
}

// tell replays a path and writes down what happens.
func tell(build func() world, path []uint8) string {
	var b strings.Builder
	s := open(build)
	defer s.close()
	for i, c := range path {
		a := s.cast[c]
		label := a.at.label
		s.step(int(c))
		if label != "start" {
			fmt.Fprintf(&b, "%3d %-10s %-15s %s\n", i, a.name, label, s.world)
		}
	}
	return b.String()
}
