//go:build verbena_model

package actor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// wordWorld is a world with one actor, producers that push and wake, and executors that run it.
type wordWorld struct {
	model.World
	w      word
	queued int // published, not handled
	enq    int // enqueued, not taken by an executor
	active int // running activations
	budget int // messages per activation
}

// scene builds a world with executors, and one producer for each number of pushes.
func scene(executors, budget int, pushes ...int) func() model.World {
	return func() model.World {
		m := &wordWorld{budget: budget}
		m.World = model.World{
			Shared: func(d *model.Digest) {
				d.Add(uint64(m.w.s.Load()))
				d.Add(uint64(m.queued)<<32 | uint64(m.enq)<<16 | uint64(m.active))
			},
			Reads: func(string) uint64 { return 0 }, // everything read shows in the actor's next step
			Check: func() error {
				if m.active > 1 {
					return errors.New("two activations at once")
				}
				return nil
			},
			End: func(blocked []string) error {
				if m.queued > 0 || m.w.s.Load() != idle {
					return fmt.Errorf("lost wake-up: %d are queued; blocked: %v", m.queued, blocked)
				}
				return nil
			},
		}
		for _, n := range pushes {
			m.Act("producer", func() { m.produce(n) })
		}
		for range executors {
			m.Act("executor", m.execute)
		}
		return m.World
	}
}

func (m *wordWorld) produce(pushes int) {
	for i := range pushes {
		model.Forget(i)
		model.Yield("push")
		m.queued++
		if m.w.wake() {
			model.Yield("enqueue")
			m.enq++
		}
	}
}

func (m *wordWorld) execute() {
	for {
		model.Forget(m.budget + 1)
		model.Block("wait", func() bool { return m.enq > 0 })
		m.enq--
		m.active++
		m.w.run()
		for left := m.budget; ; {
			model.Forget(left)
			model.Yield("look")
			if m.queued > 0 && left > 0 {
				m.queued--
				left--
				continue
			}
			m.active--
			if left == 0 {
				m.w.again()
				model.Yield("requeue")
				m.enq++
				break
			}
			if m.w.rest() {
				break
			}
			m.active++
		}
	}
}

// Rule: in every interleaving there is one activation at a time, and none rests while something is
// queued.
func TestModel(t *testing.T) {
	for name, build := range map[string]func() model.World{
		"one producer":                         scene(1, 2, 2),
		"one producer, two executors":          scene(2, 2, 3),
		"two producers, two executors":         scene(2, 2, 2, 2),
		"three producers, two executors":       scene(2, 2, 1, 1, 2),
		"two producers, one message at a time": scene(2, 1, 2, 1),
	} {
		model.Holds(t, name, build)
	}
}

// Rule: each protection is needed: without it some interleaving loses a wake-up.
func TestModelMutants(t *testing.T) {
	const lost = "lost wake-up"
	mutate.Test(t,
		mutate.New("a mark for the runner", lost, scene(1, 2, 2)).
			In("word.go", "w.s.CompareAndSwap(running, rescan)", "MUTANT || w.s.CompareAndSwap(running, rescan)"),
		mutate.New("look at the mark before resting", lost, scene(1, 2, 2)).
			In("word.go", "w.s.CompareAndSwap(running, idle)", "MUTANT && w.s.Swap(idle) > 0 || w.s.CompareAndSwap(running, idle)"),
	)
}
