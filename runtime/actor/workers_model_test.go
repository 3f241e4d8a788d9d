//go:build verbena_model

package actor

import (
	"fmt"
	"testing"
)

// noBody is the body of an actor that has nothing to do.
type noBody struct{ body }

func (noBody) receive() bool { return false }

// poolModel is a pool for actors that are each queued once, by a goroutine of its
// own, and run by workers that are goroutines of the model.
func poolModel(m *model, limit int32, actors int) {
	w := &workers{cap: limit}
	w.body = w.work
	m.soft = true
	starts := 0 // workers hired that have not begun
	hired = func(func()) { starts++ }
	all := make([]*core, actors)
	for i := range actors {
		a := &core{body: noBody{}, phase: up, opt: Options{Throughput: 1}}
		all[i] = a
		m.start("queue", func(*mthread) {
			a.word.s.Store(scheduled) // as wake leaves it
			w.queue(a)
		})
	}
	for range limit + 1 { // one may be on its way out while the next comes
		m.start("worker", func(t *mthread) {
			for !m.over {
				t.ready = func() bool { return starts > 0 }
				m.step("wait")
				t.ready = nil
				if m.over {
					return
				}
				starts--
				w.work()
			}
		})
	}
	m.rest = func() string {
		n := 0
		for a := w.line; a != nil; a = a.hook.Next() {
			n++
		}
		s := fmt.Sprint(";", w.busy.Load(), starts, w.in.Empty(), n)
		for _, a := range all {
			s += fmt.Sprint(",", a.word.s.Load())
		}
		if w.busy.Load() > limit {
			m.broken = "more workers than there may be"
		}
		return s
	}
	m.left = w.waiting
}

// Rule: in every interleaving of queueing and of workers that leave, everybody queued
// is run, and no more workers run than may. Without the last look of a worker that
// leaves somebody stays behind.
func TestEveryInterleavingOfWorkers(t *testing.T) {
	defer func() { hired, mutant = nil, mutantNone }()
	for _, c := range []struct {
		limit  int32
		actors int
	}{{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}} {
		build := func(m *model) { poolModel(m, c.limit, c.actors) }
		mutant = mutantNone
		states, broken, trace := explore(build)
		if broken != "" {
			t.Errorf("%d workers, %d actors: %s after %q", c.limit, c.actors, broken, trace)
		}
		t.Logf("%d workers, %d actors: %d states", c.limit, c.actors, states)
		mutant = mutantNoLastLook
		if _, broken, trace = explore(build); broken == "" && c.actors > int(c.limit) {
			t.Errorf("%d workers, %d actors: nothing breaks without the last look", c.limit, c.actors)
		}
		t.Logf("without the last look: %s after %d steps", broken, len(trace))
	}
}
